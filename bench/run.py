#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the same workloads in weft and in its peers, side by side, and says how they compare. See README.md."""
import argparse
import datetime
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import sys
import time

sys.dont_write_bytecode = True

import chart
from systems import Failure, machine, prepare_systems
from workloads import ROWS

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUBJECT, BASE = "weft", "go"
QUICK_SECONDS = 150     # no round is begun that would go past it
QUICK_TIMEOUT = 20      # of a single run: on a busy machine some peers take for ever
ENOUGH = 3              # rounds
OTHERS = (3, 5)         # rounds of --quick and --full in which the other peers take part; the rest is for the ratio
TOO_WIDE = 0.25         # a middle half wider than this part of the median is called noisy


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text[:shutil.get_terminal_size().columns - 1]}")
    elif text and (not text.startswith("round") or text.endswith("begins")):    # a log gets a line a round
        sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Samples:
    """The figures of all rounds: (row, system) -> list with one figure or None a round."""

    def __init__(self):
        self.values, self.failures = {}, {}

    def add(self, row, system, figures):
        value, unit = figures.get(row.metric, (None, None))
        if unit != row.unit:
            value = None
            self.failures.setdefault((row.name, system), f"no line 'RESULT {row.metric} VALUE {row.unit}'")
        self.values.setdefault((row.name, system), []).append(value)

    def of(self, row, system):
        return self.values.get((row.name, system), [])


def run_rounds(systems, rows, options):
    """Each round goes through all workloads, and through all systems at each: what disturbs the machine for a while
    hits one round of many rows instead of all rounds of one. Every other round takes the systems in reverse order."""
    runs = {}   # one run of a program may serve several rows
    for row in rows:
        runs.setdefault(row.run(options.full, options.procs), []).append(row)
    plan = [(run, system) for run in runs for system in systems if system.can(run)]
    backwards = [(run, system) for run in runs for system in systems[::-1] if system.can(run)]
    samples, failed, start, finished = Samples(), set(), time.monotonic(), 0
    pair = rest = 0     # the longest that weft and Go, and that the other peers took in a round
    try:
        for number in range(options.rounds):
            spent = time.monotonic() - start
            if options.budget and number and spent + pair > options.budget:
                break
            # The others only as long as weft and Go still come to enough rounds.
            all_take_part = number < options.others and not (
                options.budget and number and spent + rest + pair * max(1, ENOUGH - number) > options.budget)
            took = {True: 0.0, False: 0.0}
            progress(f"round {number + 1} of {options.rounds} begins")
            for run, system in backwards if number % 2 else plan:
                main = system.name in (SUBJECT, BASE)
                if (run, system) in failed or not (main or all_take_part):
                    continue
                begun = time.monotonic()
                spent = begun - start
                left = spent / max(finished, 1) * (options.rounds * len(plan) - finished)
                left = min(left, options.budget - spent) if options.budget else left
                progress(f"round {number + 1} of {options.rounds}: {runs[run][0].name} in {system.name}, {spent:.0f} s so far"
                         + (f", about {max(left, 0):.0f} s left" if finished > 3 else ""))
                figures = {}
                try:
                    figures = system.measure(run)
                except Failure as e:
                    failed.add((run, system))
                    samples.failures.update({(row.name, system.name): str(e) for row in runs[run]})
                for row in runs[run]:
                    samples.add(row, system.name, figures)
                took[main] += time.monotonic() - begun
                finished += 1
            pair, rest = max(pair, took[True]), max(rest, took[False])
    except KeyboardInterrupt:
        progress("stopped; this is what there is\n")
    return samples


def summary(values):
    values = [v for v in values if v is not None]
    if not values:
        return None
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": median, "q1": q1, "q3": q3, "spread": (q3 - q1) / median if median else 0.0, "samples": values}


def judge(row, results, ratio):
    """ok or MISSED if the whole middle half of the rounds says so; noisy if it lies on both sides of the bar.
    What is clear, but from figures that jump about, is marked as well."""
    own = results.get(SUBJECT)
    wide = any(r["spread"] > TOO_WIDE for name, r in results.items() if name in (SUBJECT, BASE))
    verdicts = set()
    for goal, figure in ((row.bar, ratio), (row.limit, own)):
        if goal is not None and figure:
            met = [(v >= goal if row.higher else v <= goal) for v in (figure["q1"], figure["q3"])]
            verdicts.add("ok" if all(met) else "noisy" if any(met) else "MISSED")
    verdict = next((v for v in ("MISSED", "noisy", "ok") if v in verdicts), "")
    if own and len(own["samples"]) < ENOUGH:
        return (verdict + ", too few rounds").lstrip(", ")
    return (verdict + ", noisy").lstrip(", ") if wide and verdict != "noisy" else verdict


def evaluate(systems, rows, samples, options):
    table = []
    for row in rows:
        figures = {s.name: summary(samples.of(row, s.name)) for s in systems}
        results = {name: f for name, f in figures.items() if f}
        pairs = zip(samples.of(row, SUBJECT), samples.of(row, BASE))
        ratio = summary([a / b for a, b in pairs if a is not None and b])
        base = results.get(BASE)
        goal = row.limit if row.limit is not None else row.bar * base["median"] if row.bar is not None and base else None
        table.append({"name": row.name, "group": row.group, "what": row.what, "unit": row.unit, "n": row.n[options.full],
                      "procs": row.procs or options.procs, "higher": row.higher, "bar": row.bar, "limit": row.limit,
                      "goal": goal, "best_other": row.best_other, "results": results, "ratio": ratio,
                      "verdict": judge(row, results, ratio)})
    return table


def print_table(table, systems):
    def cell(result):
        return f"{chart.number(result['median'])} ({100 * result['spread']:.0f}%)" if result else "-"

    def goal(row):
        sign, words = ">=" if row["higher"] else "<=", []
        if row["bar"] is not None:
            words.append(f"{sign}{row['bar']:.2f}")
        if row["limit"] is not None:
            words.append(f"{sign}{row['limit']:g} {row['unit']}")
        return " ".join(words)

    lines = [["workload", "unit"] + [s.name for s in systems] + [f"{SUBJECT}/{BASE}", "bar", "best other", ""]]
    groups = {1: table[0]["group"]} if table else {}
    for before, row in zip([None] + table, table):
        if before and before["group"] != row["group"]:
            groups[len(lines)] = row["group"]
        lines.append([row["name"], row["unit"]] + [cell(row["results"].get(s.name)) for s in systems]
                     + [f"{row['ratio']['median']:.2f}" if row["ratio"] else "-", goal(row),
                        f"{row['best_other']:g}" if row["best_other"] is not None else "", row["verdict"]])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for number, line in enumerate(lines):
        if number in groups:
            print(f"-- {groups[number]}")
        print("  ".join(w.ljust(n) if i < 2 or i == len(line) - 1 else w.rjust(n)
                        for i, (w, n) in enumerate(zip(line, widths))).rstrip())
    print(f"\nMedians; in brackets the width of the middle half of the rounds. {SUBJECT}/{BASE}: median of the rounds' ratios.")


class Load:
    """How much of the machine others took while we measured: all CPU time less our own, and what the host kept."""

    def __init__(self):
        self.start, self.before = time.monotonic(), self.read()

    @staticmethod
    def read():
        fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, _, _, irq, softirq, steal = (int(x) / os.sysconf("SC_CLK_TCK") for x in fields[:8])
        own = sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
        return user + nice + system + irq + softirq - own, steal

    def shares(self):
        """None after less than 2 seconds: the kernel counts in ticks."""
        capacity = (time.monotonic() - self.start) * os.cpu_count()
        if capacity < 2 * os.cpu_count():
            return None
        others, stolen = ((now - then) / capacity for now, then in zip(self.read(), self.before))
        return {"others": round(max(others, 0), 3), "stolen": round(stolen, 3)}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="at most 3 minutes (the default)")
    mode.add_argument("--full", action="store_true", help="all rows, full sizes and more rounds")
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose name matches, of all rows")
    parser.add_argument("--rounds", type=int, metavar="N", help="7 for --quick, 15 for --full")
    parser.add_argument("--procs", type=int, metavar="N", help="for rows that do not set their own; else each system's default")
    parser.add_argument("--systems", metavar="A,B", help="only these; else weft and every peer found")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="where to build and to write results")
    parser.add_argument("--check", action="store_true", help="exit with 1 unless every bar is met")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.systems = options.systems.split(",") if options.systems else None
    options.budget = None if options.full or options.rounds else QUICK_SECONDS
    options.others = options.rounds or OTHERS[options.full]
    options.rounds = options.rounds or (15 if options.full else 7)
    return options


def main():
    options = parse_options()
    rows = [r for r in ROWS if re.search(options.only, r.name) and (options.full or options.only or r.quick)]
    try:
        systems, skipped = prepare_systems(options.systems, options.out, progress)
    except Failure as e:
        progress("")
        sys.exit(str(e))
    for system in systems:
        system.timeout = QUICK_TIMEOUT if options.budget else system.timeout
    load = Load()
    samples = run_rounds(systems, rows, options)
    shares = load.shares()
    progress("")
    here, versions = machine(), {s.name: s.version() for s in systems}
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    headline = " · ".join([date, f"{here['cpus']} × {here['cpu']}", f"Linux {here['kernel']}"] + [f"{k} {v}" for k, v in versions.items()])
    table = evaluate(systems, rows, samples, options)

    print(headline + "\n")
    print_table(table, systems)
    if shares:
        print(f"While this ran, other programs used {100 * shares['others']:.0f} % of the CPUs and the host kept {100 * shares['stolen']:.0f} %.")
    for name, reason in skipped.items():
        print(f"{name} skipped: {reason}")
    for (row, system), reason in samples.failures.items():
        print(f"{row} failed in {system}: {reason}")

    (options.out / "results.json").write_text(json.dumps(
        {"date": date, "command": sys.argv, "mode": "full" if options.full else "quick", "machine": here, "load": shares,
         "systems": versions, "skipped": skipped, "rows": table,
         "failures": [{"row": r, "system": s, "reason": why} for (r, s), why in samples.failures.items()]}, indent=1) + "\n")
    chart.write(options.out, table, headline)
    print(f"Written: {options.out}/results.json and {options.out}/overview.svg, one .svg a workload beside it.")
    unmet = [r for r in table if (r["bar"] is not None or r["limit"] is not None) and not r["verdict"].startswith("ok")]
    ours = [system for _, system in samples.failures if system in (SUBJECT, BASE)]     # a peer's failure is a word, no error
    sys.exit(1 if ours or (options.check and unmet) else 0)


if __name__ == "__main__":
    main()
