#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The mutation check of the memory orders: weakens each single one in the files under systematic test, drops each
fence, builds, and expects some systematic test to fail.

    acquire -> relaxed    release -> relaxed    acq_rel -> acquire, release    seq_cst -> acq_rel    fence -> nothing

A mutant lies in an overlay before src/ and include/ on the include path; only what includes it is compiled anew. Those
that no test can find stand in tests/systematic/survivors.txt, each with its reason: they change nothing that C++
promises to anybody who looks. An entry there that matches no mutant, or one that was found after all, is an error.

    mutants.py [--build build/release] [-j N] [--list] [--self-test] [part of a mutant's name ...]
"""
import argparse
import concurrent.futures
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Not yet src/core/runq.h and src/core/idle.h: the orders of `head` keep a slot's reader and its next writer apart, which
# only load buffering could mix up, and the checker does not show that (tests/systematic/memory.h); the rest wants sorting.
FILES = [
    "src/os/mutex.h",
    "src/os/mutex.cc",
    "src/os/note.h",
    "src/poll/desc.h",
    "src/sync/event.cc",
    "include/weft/detail/event.hpp",
]
SURVIVORS = ROOT / "tests/systematic/survivors.txt"
WEAKER = {"acquire": ["relaxed"], "release": ["relaxed"], "acq_rel": ["acquire", "release"], "seq_cst": ["acq_rel"]}
ORDER = re.compile(r"memory_order(?:_|::)(acquire|release|acq_rel|seq_cst)\b")
FENCE = re.compile(r"\bfence\(\s*(?:rt::|std::)?memory_order(?:_|::)\w+\s*\)")
OWN_TESTS = "Litmus.*:Plain.*:Waiting.*:Search.*"
SECONDS = 180   # of CPU, for all tests of one mutant


def without_comments(text):
    """The same length, blanks for comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def mutants_of(path, text):
    """(name, mutated text) for each. The name is the line with [from>to] in the order's place."""
    code, found = without_comments(text), []
    for m in ORDER.finditer(code):
        if re.search(r"\busing\b[^;]*$", code[:m.start()]):
            continue
        for weaker in WEAKER[m[1]]:
            found.append((m.start(1), m.end(1), weaker, f"[{m[1]}>{weaker}]"))
    for m in FENCE.finditer(code):
        found.append((m.start(), m.end(), "static_cast<void>(0)", "[dropped:" + text[m.start():m.end()] + "]"))
    found.sort(key=lambda f: f[0])
    names, out = {}, []
    for start, end, by, mark in found:
        first = text.rfind("\n", 0, start) + 1
        last = text.find("\n", end)
        line = (text[first:start] + mark + code[end:last]).strip()
        names[line] = names.get(line, 0) + 1
        name = f"{path}: {line}" + (f" #{names[line]}" if names[line] > 1 else "")
        out.append((name, text[:start] + by + text[end:]))
    return out


def equivalents():
    """Name to reason. A name begins in the first column, its reason is indented below."""
    known, name = {}, None
    for line in SURVIVORS.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line[0].isspace():
            name = line.strip()
            if name in known:
                sys.exit(f"{SURVIVORS.name}: twice: {name}")
            known[name] = ""
        elif name is None:
            sys.exit(f"{SURVIVORS.name}: a reason without a mutant: {line}")
        else:
            known[name] += line.strip() + " "
    for name, reason in known.items():
        if not reason:
            sys.exit(f"{SURVIVORS.name}: no reason: {name}")
    return known


class Build:
    """The program weft_systematic, built already, with one of its sources replaced."""

    def __init__(self, build):
        self.build = build
        subprocess.run(["cmake", "--build", build, "--target", "weft_systematic"], check=True, stdout=subprocess.DEVNULL)
        commands = json.loads((build / "compile_commands.json").read_text())
        self.units = {}
        for c in commands:
            command = shlex.split(c["command"])
            out = command[command.index("-o") + 1]
            if "/weft_systematic.dir/" in out and out.endswith(".cc.o"):
                self.units[out] = (Path(c["file"]), command)
        deps = subprocess.run(["ninja", "-C", build, "-t", "deps", *self.units], check=True, capture_output=True, text=True)
        self.uses, unit = {}, None
        for line in deps.stdout.splitlines():
            if line and not line[0].isspace():
                unit = line.split(":")[0]
            elif line.strip():
                self.uses.setdefault((build / line.strip()).resolve(), set()).add(unit)
        link = subprocess.run(["ninja", "-C", build, "-t", "commands", "weft_systematic"], check=True, capture_output=True,
                              text=True).stdout.splitlines()[-1]
        link = link.split("&&")
        self.link = shlex.split(next(part for part in link if " -o tests/weft_systematic" in part))

    def run(self, where, path, text):
        """What the tests say to `text` in the place of `path`: 'caught', 'survived', or what went wrong."""
        overlay = where / "overlay"
        source = ROOT / path
        root = next(r for r in ("src", "include", "tests") if path.startswith(r + "/"))
        mutated = overlay / Path(path).relative_to(root)
        mutated.parent.mkdir(parents=True, exist_ok=True)
        mutated.write_text(text, encoding="utf-8")
        link = list(self.link)
        for unit in self.uses.get(source.resolve(), ()):
            file, command = self.units[unit]
            out = where / Path(unit).name
            command = [str(out) if w == unit else w for w in command]
            if file.resolve() == source.resolve():
                command = [str(mutated) if Path(w) == file else w for w in command]
            command = [w for w in command if w not in ("-Werror", "ccache")]
            command[1:1] = [f"-I{overlay}"]
            for flag in ("-MD", "-g"):
                if flag in command:
                    command.remove(flag)
            for flag in ("-MT", "-MF"):
                if flag in command:
                    at = command.index(flag)
                    del command[at:at + 2]
            compiled = subprocess.run(command, cwd=self.build, capture_output=True, text=True)
            if compiled.returncode != 0:
                return "does not compile: " + compiled.stderr[:400]
            link = [str(out) if w == unit else w for w in link]
        program = where / "weft_systematic"
        link = [str(program) if w == "tests/weft_systematic" else w for w in link]
        linked = subprocess.run(link, cwd=self.build, capture_output=True, text=True)
        if linked.returncode != 0:
            return "does not link: " + linked.stderr[:400]
        try:
            ran = subprocess.run(["prlimit", f"--cpu={SECONDS}", program, f"--gtest_filter=-{OWN_TESTS}", "--gtest_fail_fast"],
                                 capture_output=True, text=True)
        finally:
            shutil.rmtree(where)
        if ran.returncode == 0:
            return "survived"
        failed = re.search(r"\[  FAILED  \] (\S+)", ran.stdout)
        return f"caught by {failed[1].rstrip(',')}" if ran.returncode == 1 and failed else f"ended with {ran.returncode}"


def self_test():
    text = ("using std::memory_order_acquire;\n// memory_order_acquire in a comment\n"
            "a.load(memory_order_acquire);  // with memory_order_release\nx.swap(1, memory_order_acq_rel);\n"
            "fence(memory_order_seq_cst);\na.load(memory_order_acquire);\n")
    names = [n for n, _ in mutants_of("f", text)]
    assert names == ["f: a.load(memory_order_[acquire>relaxed]);", "f: x.swap(1, memory_order_[acq_rel>acquire]);",
                     "f: x.swap(1, memory_order_[acq_rel>release]);", "f: [dropped:fence(memory_order_seq_cst)];",
                     "f: fence(memory_order_[seq_cst>acq_rel]);", "f: a.load(memory_order_[acquire>relaxed]); #2"], names
    assert mutants_of("f", text)[2][1].count("release") == text.count("release") + 1
    print(f"mutants self-test: ok ({len(names)} planted mutants)")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", type=Path, default=ROOT / "build/release")
    ap.add_argument("-j", type=int, default=2)
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--self-test", action="store_true")
    ap.add_argument("parts", nargs="*")
    args = ap.parse_args()
    if args.self_test:
        return self_test()
    todo = [(name, path, text) for path in FILES
            for name, text in mutants_of(path, (ROOT / path).read_text(encoding="utf-8"))]
    known = equivalents()
    bad = [f"no such mutant (any more): {name}" for name in known if name not in {n for n, _, _ in todo}]
    todo = [t for t in todo if not args.parts or any(p in t[0] for p in args.parts)]
    if args.list:
        print("\n".join(name for name, _, _ in todo))
        return None
    build = Build(args.build.resolve())
    overlays = args.build.resolve() / "mutants"
    caught = equal = 0

    def one(job):
        number, (name, path, text) = job
        return name, build.run(overlays / str(number), path, text)

    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        for name, outcome in pool.map(one, enumerate(todo)):
            if outcome.startswith("caught"):
                caught += 1
                if name in known:
                    bad.append(f"listed as equivalent, but {outcome}: {name}")
            elif outcome == "survived" and name in known:
                equal += 1
            else:
                bad.append(f"{outcome}: {name}")
            print(f"{outcome:50} {name}", flush=True)
    print("\n".join(bad))
    print(f"mutants: {len(todo)}, {caught} caught, {equal} equivalent, {len(bad)} errors")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
