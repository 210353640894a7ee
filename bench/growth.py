#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the cost of an operation grows with the number of goroutines, and with that of Ps: each workload over n = 10^2 to 10^6
and 1, 2, 4 and 16 Ps, in weft and in Go (or --systems), as build/bench/growth.json and a chart growth_<workload>.svg each.

Points are medians of --rounds runs; as in run.py, a round goes through all points, and at each through all systems."""
import argparse
import datetime
import json
import pathlib
import re
import statistics
import sys

sys.dont_write_bytecode = True

import chart
from run import ROOT, progress
from systems import Failure, machine, prepare_systems
from workloads import Run

# metric: (workload, what, unit, largest n)
CURVES = {
    "yield_of": ("yield_of", "n goroutines yield in turns: a yield", "ns", 10**6),
    "spawn_batch": ("spawn_batch", "spawn n, wait for all: each", "ns", 10**6),
    "parked_bytes": ("parked", "n parked: memory each", "B", 10**6),
    "parked_spawn": ("parked", "n parked: start each", "ns", 10**6),
    "parked_wake": ("parked", "n parked: wake each", "ns", 10**6),
    "close_wakes": ("close_wakes", "close wakes n: each", "ns", 10**6),
    "pairs_of": ("pairs_of", "n / 2 pairs: an unbuffered round trip", "ns", 10**6),
    "mutex_of": ("mutex_of", "n at one lock: lock and unlock", "ns", 10**6),
    "timers_of": ("timers_of", "n timers: set and stop", "ns", 10**6),
    "skynet": ("skynet", "skynet of n leaves: in all", "ms", 10**6),
    "sleepers": ("sleepers", "n sleep 1 to 1000 ms: in all", "ms", 10**6),
}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="curves whose name matches")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--systems", default="weft,go", metavar="A,B")
    parser.add_argument("--procs", default="1,2,4,16", metavar="1,2,...")
    parser.add_argument("--max", type=int, default=10**6, metavar="N", help="the largest n")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.procs = [int(p) for p in options.procs.split(",")]
    return options


def main():
    options = parse_options()
    curves = {name: c for name, c in CURVES.items() if re.search(options.only, name)}
    try:
        systems, skipped = prepare_systems(options.systems.split(","), options.out, progress)
    except Failure as e:
        sys.exit(str(e))
    # One run may serve several curves. The large ones come last, so that an interrupted run has something whole.
    runs = sorted({Run(workload, 10**e, procs, None) for workload, _, _, most in curves.values() for e in range(2, 7)
                   if 10**e <= min(most, options.max) for procs in options.procs}, key=lambda r: (r.n, r.workload, r.procs))
    plan = [(run, system) for run in runs for system in systems if system.can(run)]
    samples, failures = {}, {}
    try:
        for number in range(options.rounds):
            progress(f"round {number + 1} of {options.rounds} begins")
            for done, (run, system) in enumerate(plan):
                progress(f"round {number + 1} of {options.rounds}: {done} of {len(plan)}, {run.workload} of {run.n} with {run.procs} P in {system.name}")
                if (run, system.name) in failures:
                    continue
                try:
                    for metric, (value, _) in system.measure(run).items():
                        samples.setdefault((metric, system.name, run.procs, run.n), []).append(value)
                except Failure as e:
                    failures[run, system.name] = str(e)
    except KeyboardInterrupt:
        progress("stopped; this is what there is\n")
    progress("")

    here, date = machine(), datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    versions = {s.name: s.version() for s in systems}
    headline = " · ".join([date[:10], f"{here['cpus']} × {here['cpu']}", f"Linux {here['kernel']}"] + [f"{k} {v}" for k, v in versions.items()])
    record = []
    for name, (_, what, unit, _) in curves.items():
        series = {}
        for (metric, system, procs, n), values in samples.items():
            if metric == name:
                series.setdefault((system, procs), []).append((n, statistics.median(values)))
                record.append({"curve": name, "unit": unit, "system": system, "procs": procs, "n": n, "samples": values})
        if not series:
            continue
        series = {k: sorted(series[k]) for k in sorted(series, key=lambda k: (options.systems.split(",").index(k[0]), k[1]))}
        (options.out / f"growth_{name}.svg").write_text(chart.lines(what, unit, series, headline))
        print(f"{name}: {what}, {unit}")
        for (system, procs), points in series.items():
            print(f"  {system:<6}{procs:>3} P  " + "".join(f"{chart.number(v):>12}" for _, v in points))
    (options.out / "growth.json").write_text(json.dumps({"date": date, "machine": here, "systems": versions, "points": record}, indent=1) + "\n")
    for name, reason in skipped.items():
        print(f"{name} skipped: {reason}")
    for (run, system), reason in failures.items():
        print(f"{run.workload} {run.n} with {run.procs} P failed in {system}: {reason}")
    print(f"Written: {options.out}/growth.json and growth_<curve>.svg.")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
