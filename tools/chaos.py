#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests of the chaos build under many seeds (src/base/chaos.h), each test a process of its own.

    tools/chaos.py build/chaos/tests/weft_conformance --seeds 1000

Says of each failure which seed and which command bring it back, and at the end how often each named
point was passed and how often something happened there. A point that nobody passed is dead: with
--no-dead it is named, and a failure too.
"""
import argparse
import collections
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time


def list_tests(program, pattern):
    out = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={pattern}"],
                         capture_output=True, text=True, check=True).stdout
    tests, suite = [], ""
    for line in out.splitlines():
        name = line.split("#")[0].rstrip()
        if not name or name.startswith("Running main"):
            continue
        if not name.startswith(" "):
            suite = name
        else:
            tests.append(suite + name.strip())
    return tests


def run_one(program, test, setting, report, timeout):
    env = dict(os.environ, WEFT_CHAOS=f"{setting},report={report}")
    return run_command([program, f"--gtest_filter={test}"], timeout, env)


def run_command(words, timeout, env=None):
    """Whether it ended well and in time, how it ended, what it said, and the seconds it took."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(words, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = child.wait(timeout)
            how = f"status {status}"
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.wait()
            status, how = -1, f"no end within {timeout} s"
        out.seek(0)
        text = out.read().decode(errors="replace")
    return status == 0, how, text, time.monotonic() - began


def read_report(path):
    counts = collections.OrderedDict()
    for line in open(path):
        kind, name, passed, acted = line.split()
        old = counts.get((kind, name), (0, 0))
        counts[kind, name] = (old[0] + int(passed), old[1] + int(acted))
    return counts


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("program")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--first", type=int, default=1, help="the first seed")
    p.add_argument("--filter", default="*", help="GoogleTest's")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--timeout", type=float, default=120, help="seconds a test may take")
    p.add_argument("--setting", default="", help="more of WEFT_CHAOS, as only=runq")
    p.add_argument("--minutes", type=float, help="begin no seed after so long")
    p.add_argument("--no-dead", action="store_true", help="a point that nobody passes is an error")
    args = p.parse_args()

    tests = list_tests(args.program, args.filter)
    if not tests:
        sys.exit(f"no test matches {args.filter}")
    fd, report = tempfile.mkstemp(prefix="weft-chaos-")
    os.close(fd)
    failures, seeds, began = [], 0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for seed in range(args.first, args.first + args.seeds):
            if args.minutes and time.monotonic() - began > 60 * args.minutes:
                print(f"chaos: the time is over, {seeds} seeds were run")
                break
            setting = f"seed={seed}" + (f",{args.setting}" if args.setting else "")
            at = time.monotonic()
            results = list(pool.map(
                lambda t: (t, *run_one(args.program, t, setting, report, args.timeout)), tests))
            seeds += 1
            bad = [r for r in results if not r[1]]
            failures += [(seed, r[0]) for r in bad]
            slow = max(results, key=lambda r: r[4])
            print(f"seed {seed}: {len(tests)} tests, {len(bad)} failures, "
                  f"{time.monotonic() - at:.0f} s (longest: {slow[0]}, {slow[4]:.1f} s)", flush=True)
            for test, _, how, text, _ in bad:
                print(f"  FAILED {test} ({how})\n  again: WEFT_CHAOS={setting} {args.program} "
                      f"--gtest_filter='{test}' --gtest_repeat=20")
                print("    | " + "\n    | ".join(text.rstrip().splitlines()[-25:]), flush=True)

    counts = read_report(report)
    os.unlink(report)
    dead = []
    for (kind, name), (passed, acted) in counts.items():
        if args.no_dead:
            print(f"  {kind} {name:20} {passed:14} passed {acted:12} acted")
        if kind == "point" and passed == 0 and args.no_dead:
            dead.append(name)
    if dead:
        print("chaos: nobody passed " + ", ".join(dead))
    print(f"chaos: {seeds} seeds x {len(tests)} tests, {len(failures)} failures")
    for seed, test in failures:
        print(f"  seed {seed}: {test}")
    sys.exit(1 if failures or dead else 0)


if __name__ == "__main__":
    main()
