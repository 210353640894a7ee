#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests under a storm of signals (tests/storm/main.cc), each test a process of its own.

    tools/storm.py build/release/tests/weft_storm build/release/tests/weft_conformance [--filter 'PRE_*']

SIGURG, SIGALRM and SIGPROF come to every thread a thousand times a second. Tests whose subject is one
of these signals, or a raw call of libc's that a handler ends with EINTR whatever its flags, are left
out; `EXCUSED` says why.
"""
import argparse
import concurrent.futures
import re
import sys
import time

from chaos import list_tests, run_command

# A part of the test's name, and why the storm is not its business.
EXCUSED = {
    "SYS_nobody_notices_that_its_p_was_taken": "counts EINTR in poll, nanosleep and timed recv, which every handler causes",
    "SYS_a_send_is_whole": "a blocking send ends short at any handler, SA_RESTART or not",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("storm")
    parser.add_argument("program")
    parser.add_argument("--filter", default="*", help="of GoogleTest")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a test")
    parser.add_argument("--seconds", type=float, default=60, help="at least; the suite is begun anew until then")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    args = parser.parse_args()

    tests = [t for t in list_tests(args.program, args.filter) if not any(part in t for part in EXCUSED)]
    began = time.monotonic()
    failures, ran, signals, rounds = [], 0, 0, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        while rounds == 0 or time.monotonic() - began < args.seconds and not failures:
            rounds += 1
            runs = {pool.submit(run_command, [args.storm, args.program, f"--gtest_filter={t}"], args.timeout): t
                    for t in tests}
            for done in concurrent.futures.as_completed(runs):
                ok, how, text, _ = done.result()
                ran += 1
                signals += sum(int(n) for n in re.findall(r"weft_storm: (\d+) signals", text))
                if not ok:
                    failures.append(runs[done])
                    print(f"FAILED {runs[done]}: {how}\n{text}", flush=True)
    print(f"{ran} tests under {signals} signals in {time.monotonic() - began:.0f} s, {len(failures)} failed")
    for test in failures:
        print(f"  {args.storm} {args.program} --gtest_filter='{test}'")
    return 1 if failures or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
