#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the models under models/ to exhaustion with Spin, and sees each of their mutants refuted.

  tools/check_models.py [-j N] [--table] [model]...

The comment at the head of a model says what there is to run:

  variant NAME: -DX=1 ...                  a run of its own; without any there is one, unnamed
  mutant N (assert|end) [in NAME]: text    -DMUTANT_N must be refuted: by an assertion, or by a process that is
                                           stuck (Spin: invalid end state); in the variant NAME, or the first

A model holds if each variant was searched to the end, within the limits, without an error, and every statement
was reached in one of them. A mutant that is not refuted, or in another way than its line says, is a failure: the
model would not notice the bug. --table prints the figures for models/README.md.
"""
import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "models"
MEMORY_MB = 1024
SECONDS = 20
GRACE = 6  # a loaded machine is slower; the limit is on CPU time, this factor on the wall
DEPTH = 1_000_000

VARIANT = re.compile(r"^ \* variant (\w+): (.*)$", re.M)
MUTANT = re.compile(r"^ \* mutant (\d+) \((assert|end)\)(?: in (\w+))?: (.*)$", re.M)


class Run:
    def __init__(self, model, variant, flags, mutant=None, how=None):
        self.model, self.variant, self.flags, self.mutant, self.how = model, variant, flags, mutant, how
        self.name = model.stem + (f".{variant}" if variant else "") + (f" mutant {mutant}" if mutant else "")
        self.problem = None
        self.states = self.seconds = self.megabytes = 0
        self.unreached = set()
        self.out = ""

    def go(self):
        where = WORK / self.name.replace(" ", "_")
        where.mkdir(parents=True, exist_ok=True)
        flags = self.flags + ([f"-DMUTANT_{self.mutant}"] if self.mutant else [])
        try:
            self.call(where, ["spin", "-a", *flags, str(self.model)])
            # Search safety only; all the properties are assertions and end states.
            speed = "-O0" if self.mutant else "-O2"  # most of the time is the compiler's
            self.call(where, ["gcc", "-w", speed, "-DSAFETY", f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"])
            start = time.monotonic()
            limit = ["bash", "-c", f"ulimit -t {SECONDS}; exec ./pan -m{DEPTH} -w23"]
            self.out = self.call(where, limit, SECONDS * GRACE)
            self.seconds = time.monotonic() - start
            self.judge()
        except RuntimeError as e:
            self.problem = str(e)
        return self

    def call(self, where, command, seconds=120):
        try:
            r = subprocess.run(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               timeout=seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{command[0]}: more than {seconds} s") from None
        if r.returncode < 0 or r.returncode >= 128:
            raise RuntimeError(f"{command[0]}: ended by a signal ({r.returncode}); more than {SECONDS} s of CPU?")
        if r.returncode != 0:
            raise RuntimeError(f"{command[0]}: {r.stdout.strip()[-600:]}")
        return r.stdout

    def judge(self):
        errors = re.search(r"errors: (\d+)", self.out)
        stored = re.search(r"(\d+) states, stored", self.out)
        if not errors or not stored:
            self.problem = "no verdict: " + self.out[-600:]
            return
        self.states = int(stored[1])
        if m := re.search(r"([\d.]+)\s+total actual memory usage", self.out):
            self.megabytes = float(m[1])
        if self.mutant:
            found = ("assert" if "assertion violated" in self.out else
                     "end" if "invalid end state" in self.out else None)
            if int(errors[1]) == 0 or found is None:
                self.problem = "not refuted"
            elif found != self.how:
                self.problem = f"refuted by {found}, expected {self.how}: " + self.out.split("\n", 1)[0]
            return
        if int(errors[1]) != 0:
            self.problem = "error: " + self.out.split("\n", 1)[0]
        elif truncated := re.search(r"max search depth too small|reached -DMEMLIM|Search not completed", self.out):
            self.problem = "not searched to the end: " + truncated[0]
        self.unreached = reach(self.out)


def reach(out):
    """Statements that no execution came to, as (process, line, text); those that end a loop do not count."""
    left, process = set(), ""
    for line in out.splitlines():
        if m := re.match(r"unreached in (?:proctype )?(\S+)", line):
            process = m[1]
        elif m := re.match(r'\t\S+:(\d+), state \d+, "(.*)"$', line):
            if m[2] != "-end-":
                left.add((process, int(m[1]), m[2]))
    return left


def plan(model):
    text = model.read_text()
    variants = {name: flags.split() for name, flags in VARIANT.findall(text)} or {"": []}
    first = next(iter(variants))
    mutants = MUTANT.findall(text)
    told, used = {int(m[0]) for m in mutants}, {int(n) for n in re.findall(r"\bMUTANT_(\d+)", text)}
    if told != used or not told:
        sys.exit(f"{model.name}: mutants in the head {sorted(told)}, in the code {sorted(used)}")
    runs = [Run(model, v, f) for v, f in variants.items()]
    return runs + [Run(model, v or first, variants[v or first], int(n), how) for n, how, v, _ in mutants]


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("-j", type=int, default=int(os.environ.get("JOBS", "2")))
    args.add_argument("--table", action="store_true")
    args.add_argument("model", nargs="*")
    args = args.parse_args()
    models = sorted((ROOT / "models").glob("*.pml"))
    if args.model:
        models = [m for m in models if m.stem in args.model]
        if len(models) != len(set(args.model)):
            sys.exit("no such model; there are: " + " ".join(m.stem for m in (ROOT / "models").glob("*.pml")))
    runs = [r for m in models for r in plan(m)]
    started, failed = time.monotonic(), 0
    with ThreadPoolExecutor(args.j) as pool:
        for r in pool.map(Run.go, runs):
            verdict = "FAILED: " + r.problem if r.problem else "refuted" if r.mutant else "holds"
            failed += r.problem is not None
            print(f"{r.name:28} {r.states:>9} states {r.megabytes:6.0f} MB {r.seconds:6.1f} s  {verdict}", flush=True)
    for m in models:
        whole = [r for r in runs if r.model == m and not r.mutant]
        never = set.intersection(*(r.unreached for r in whole)) if not any(r.problem for r in whole) else set()
        for process, line, text in sorted(never):
            failed += 1
            print(f"{m.name}:{line}: never reached in {process}: {text}")
    if args.table:
        print("\n| model | states | MB | s | mutants refuted |\n|---|---|---|---|---|")
        for m in models:
            refuted = sum(1 for r in runs if r.model == m and r.mutant and not r.problem)
            for r in runs:
                if r.model == m and not r.mutant:
                    print(f"| {r.name} | {r.states:,} | {r.megabytes:.0f} | {r.seconds:.1f} | {refuted} |")
    held = sum(1 for r in runs if not r.mutant and not r.problem)
    refuted = sum(1 for r in runs if r.mutant and not r.problem)
    print(f"models: {held} runs hold, {refuted} mutants refuted, {failed} failed, {time.monotonic() - started:.0f} s")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
