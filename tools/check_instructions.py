#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of the hot paths under callgrind and compares them with bench/instructions/counts.json.

  tools/check_instructions.py [--build DIR] [--update] [--only REGEX] [--functions] | --self-test

Each path of build/release/bench/hot_paths runs N and then M times; the difference, divided by M - N, is what one
operation takes, without start-up and end. Unlike time this is the same on a busy machine, up to sysmon's ticks and the
length of spins, which only ever add. So a path that seems to have grown is counted again, and the least counts.

A path fails if it takes more than the table says by more than 2 % and one instruction; the functions that grew are
named. One that takes less by that much does not fail, but should be written down (--update). The counts are those of
one compiler on one architecture: elsewhere there is nothing to compare, and the check says so and passes.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "bench" / "instructions" / "counts.json"
SHORT, LONG = 10_000, 60_000
TOLERANCE, SLACK = 0.02, 1.0
WORTH_A_LINE = 0.05     # instructions an operation; what is below is sysmon's and the like
ATTEMPTS = 4
SECONDS = 120


def functions(profile):
    """Self cost by function. A cost line is a position and a number; the one after calls= is the callee's, not ours."""
    cost, names, current, skip = collections.Counter(), {}, None, False
    for line in profile.read_text().splitlines():
        if match := re.match(r"fn=\((\d+)\)(?: (.*))?$", line):
            if match[2]:
                names[match[1]] = match[2]
            current = match[1]
        elif match := re.match(r"cfn=\((\d+)\) (.*)$", line):
            names[match[1]] = match[2]
        elif line.startswith("calls="):
            skip = True
        elif re.match(r"[0-9+*-]", line):
            if not skip:
                cost[current] += int(line.split()[-1])
            skip = False
    total = collections.Counter()
    for ident, count in cost.items():
        total[short(names[ident])] += count
    return total


def short(name):
    """weft::rt::park(void (*)(...), ...)'2 -> rt::park: without parameters, template arguments, callgrind's numbers."""
    name = re.sub(r"'\d+$", "", name).replace("(anonymous namespace)::", "").replace("weft::", "")
    kept, depth = "", 0
    for c in re.sub(r"^(void|bool|auto|int|long) ", "", name.replace("operator<", "operator_lt")):
        if c in "<(":
            depth += 1
        elif c in ">)":
            depth -= 1
        elif depth == 0:
            kept += c
    return kept.strip()


def run(program, path, n):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(program), path, str(n)],
                              env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode:
            sys.exit(f"{path} {n}: exit status {done.returncode}\n{done.stderr[-2000:]}")
        return functions(out)


def count(program, path):
    """Instructions of one operation, by function."""
    few, many = run(program, path, SHORT), run(program, path, LONG)
    each = {f: (many[f] - few[f]) / (LONG - SHORT) for f in many | few}
    return {f: round(c, 2) for f, c in sorted(each.items(), key=lambda x: -x[1]) if c >= WORTH_A_LINE}


def total(counts):
    return sum(counts.values())


def verdict(old, new):
    """old: by function, or None if the table does not have the path."""
    if old is None:
        return "not in the table"
    if total(new) > total(old) * (1 + TOLERANCE) + SLACK:
        return "GREW"
    return "less: --update" if total(new) < total(old) * (1 - TOLERANCE) - SLACK else ""


def toolchain(build):
    """What the counts hold for."""
    cache = (build / "CMakeCache.txt").read_text()
    field = lambda name: re.search(rf"^{name}:\w+=(.*)$", cache, re.M)[1]
    version = subprocess.run([field("CMAKE_CXX_COMPILER"), "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    words = subprocess.run([field("CMAKE_CXX_COMPILER"), "--version"], capture_output=True, text=True).stdout
    name = "clang" if "clang" in words else "g++"
    return f"{name} {version}, {field('CMAKE_BUILD_TYPE')}, {platform.machine()}, {' '.join(platform.libc_ver())}"


def explain(old, new):
    """The functions that make the difference, the largest first."""
    by = sorted(((new.get(f, 0) - old.get(f, 0), f) for f in old | new), reverse=True)
    return [f"      {d:+8.1f}  {f}  ({old.get(f, 0):.1f} -> {new.get(f, 0):.1f})" for d, f in by[:8] if d >= 0.5]


def self_test():
    with tempfile.NamedTemporaryFile("w+") as f:
        f.write("events: Ir\n\nfl=(1) a.cc\nfn=(1) weft::rt::park(void (*)(void*, void*), weft::rt::why)\n1 10\n+2 5\n"
                "cfn=(2) void weft::go<int, (anonymous namespace)::x>(int)\ncalls=3 7\n* 900\n5 1\n\nfn=(2)\n7 4\n"
                "fn=(3) weft::rt::park(void (*)(void*, void*), weft::rt::why)'2\n1 2\n")
        f.flush()
        assert functions(pathlib.Path(f.name)) == {"rt::park": 18, "go": 4}, functions(pathlib.Path(f.name))
    assert [verdict({"f": 100}, {"f": n}) for n in (96, 98, 103, 104)] == ["less: --update", "", "", "GREW"]
    assert verdict(None, {"f": 1}) == "not in the table"
    assert explain({"f": 10, "g": 5}, {"f": 8, "g": 9}) == ["          +4.0  g  (5.0 -> 9.0)"]
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="a release build with the target hot_paths")
    parser.add_argument("--update", action="store_true", help="write the table anew")
    parser.add_argument("--only", default="", metavar="REGEX", help="paths whose name matches")
    parser.add_argument("--functions", action="store_true", help="print each path's functions")
    parser.add_argument("-j", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--self-test", action="store_true", help="of this script")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if not shutil.which("valgrind"):
        sys.exit("valgrind is not installed (tools/setup.sh ci)")
    program, here = options.build / "bench" / "hot_paths", toolchain(options.build)
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"toolchain": here, "paths": {}}
    if table["toolchain"] != here and not options.update:
        print(f"the table is for {table['toolchain']}, this is {here}: nothing to compare")
        return 0
    listed = subprocess.run([str(program), "--list"], capture_output=True, text=True, check=True).stdout.split()
    chosen = [p for p in listed if re.search(options.only, p)]
    old = table["paths"]
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        new = dict(zip(chosen, pool.map(lambda p: count(program, p), chosen)))
    for path in chosen:     # what is not the path's own only ever adds, so the least of several counts is the best
        for _ in range(ATTEMPTS - 1):
            if options.update or verdict(old.get(path), new[path]) == "GREW":
                new[path] = min(new[path], count(program, path), key=total)

    failed = []
    print(f"{'path':<18}{'table':>8}{'now':>8}{'':>8}")
    for path in chosen:
        was, now, word = total(old.get(path, {})), total(new[path]), verdict(old.get(path), new[path])
        print(f"{path:<18}{was:>8.1f}{now:>8.1f}{f'{now / was - 1:+8.1%}' if was else '':>8}  {word}".rstrip())
        if options.functions:
            print("\n".join(f"      {c:8.1f}  {f}" for f, c in new[path].items()))
        elif word == "GREW":
            print("\n".join(explain(old[path], new[path])))
        if word in ("GREW", "not in the table"):
            failed.append(path)
    if options.update:
        kept = {p: c for p, c in old.items() if p in listed and p not in new}
        TABLE.write_text(json.dumps({"toolchain": here, "paths": {p: (kept | new)[p] for p in listed if p in kept | new}}, indent=1) + "\n")
        return 0
    if failed:
        print(f"\nMore instructions than {TABLE.relative_to(ROOT)} allows: {', '.join(failed)}. Wanted? Then --update, and the why in the commit.")
    gone = [p for p in old if p not in listed]
    if gone:
        print(f"in the table, but not in hot_paths: {', '.join(gone)}")
    return 1 if failed or gone else 0


if __name__ == "__main__":
    sys.exit(main())
