#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the include order of the tree: a file may include its own group of layers and lower ones.

    base -> os, context, stack -> core, timer, poll, trace -> sched
         -> chan, sync, time, net, context_tree, signal, file, testing -> include/weft

debug may include everything, and nothing includes debug. include/weft includes nothing of src/.
src/ may include public headers from sched upwards only.

    check_layers.py [root]        check_layers.py --self-test
"""
import re
import sys
import tempfile
from pathlib import Path

GROUPS = [
    ["base"],
    ["os", "context", "stack"],
    ["core", "timer", "poll", "trace"],
    ["sched"],
    ["chan", "sync", "time", "net", "context_tree", "signal", "file", "testing"],
]
RANK = {layer: rank for rank, group in enumerate(GROUPS) for layer in group}
RANK["debug"] = len(GROUPS)
SOURCES = {".h", ".hpp", ".cc", ".cpp", ".S", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def files(folder):
    return sorted(f for f in folder.rglob("*") if f.suffix in SOURCES)


def includes(file):
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1], match[2]


def target_of(src, file, quote, name):
    """What an include names: 'public', a file of src/ (as a path relative to it), or None: not ours."""
    if name.startswith("weft/"):
        return "public"
    if quote == '"' and (file.parent / name).resolve().is_relative_to(src) and (file.parent / name).exists():
        return (file.parent / name).resolve().relative_to(src).as_posix()
    if (src / name).exists():
        return name
    return name if quote == '"' and name.split("/")[0] in RANK else None   # named, not yet written


def check(root):
    root = Path(root).resolve()
    src, bad, count = root / "src", [], 0
    for file in files(root / "include"):
        count += 1
        for number, quote, name in includes(file):
            if target_of(src, file, quote, name) not in (None, "public"):
                bad.append(f"{file.relative_to(root)}:{number}: a public header includes {name} of src/")
    for file in files(src):
        count += 1
        parts = file.relative_to(src).parts
        layer, shown = parts[0], file.relative_to(root)
        if len(parts) < 2 or layer not in RANK:
            bad.append(f"{shown}: belongs to no layer; name its folder in GROUPS of tools/check_layers.py")
            continue
        for number, quote, name in includes(file):
            target = target_of(src, file, quote, name)
            if target is None:
                continue
            if target == "public":
                if RANK[layer] < RANK["sched"]:
                    bad.append(f"{shown}:{number}: {layer} is below sched and includes the public <{name}>")
                continue
            other = target.split("/")[0]
            if other == "debug" and layer != "debug":
                bad.append(f"{shown}:{number}: {layer} includes {name}, but nothing may include debug")
            elif other not in RANK:
                bad.append(f"{shown}:{number}: {name} belongs to no layer")
            elif RANK[other] > RANK[layer]:
                bad.append(f"{shown}:{number}: {layer} includes {name}, which is a layer above it")
    return bad, count


def self_test():
    tree = {   # path: (includes, number of violations expected)
        "src/base/a.h": ("<atomic>", 0),
        "src/base/b.h": ('"os/clock.h"', 1),
        "src/os/clock.h": ('"base/a.h" "stack/s.h"', 0),
        "src/stack/s.h": ('"s2.h"', 0),
        "src/stack/s2.h": ('"../core/g.h"', 1),
        "src/core/g.h": ("<weft/go.hpp>", 1),
        "src/timer/t.h": ('"core/g.h" "sched/s.h"', 1),
        "src/sched/s.h": ('"core/g.h" <weft/go.hpp>', 0),
        "src/chan/c.cc": ('"sched/s.h" "debug/d.h"', 1),
        "src/debug/d.h": ('"chan/later.h" "sched/s.h" <weft/go.hpp>', 0),
        "src/odd/o.h": ("", 1),
        "include/weft/go.hpp": ("<vector> <weft/run.hpp>", 0),
        "include/weft/run.hpp": ('"core/g.h"', 1),
    }
    with tempfile.TemporaryDirectory() as root:
        for path, (names, _) in tree.items():
            file = Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"#include {n}\n" for n in names.split()))
        bad, _ = check(root)
        for path, (_, expected) in tree.items():
            found = [line for line in bad if line.startswith(path + ":")]
            if len(found) != expected:
                sys.exit(f"check_layers self-test: {path}: expected {expected}, found {found}")
    print(f"check_layers self-test: ok ({len(bad)} planted violations found)")


if __name__ == "__main__":
    if "--self-test" in sys.argv[1:]:
        self_test()
        sys.exit()
    violations, seen = check(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    print("\n".join(violations), end="\n" if violations else "")
    print(f"check_layers: {seen} files, {len(violations)} violations")
    sys.exit(bool(violations))
