#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the same workloads in weft and in its peers, side by side, and says how they compare. See README.md."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import chart
from workloads import ROWS

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
SUBJECT, BASE = "weft", "go"
QUICK_SECONDS = 150     # no round is begun that would go past it
TOO_WIDE = 0.25         # a middle half wider than this part of the median is called noisy
RUN_TIMEOUT = 180
RESULT = re.compile(r"^RESULT (\S+) (\S+) (\S+)$", re.M)


class Failure(Exception):
    pass


class System:
    """One folder with a system.json: how to build it, which programs come out, and what they can run."""

    def __init__(self, folder, out):
        self.name, self.folder, self.build = folder.name, folder, out / folder.name
        self.spec = json.loads((folder / "system.json").read_text())
        self.programs = {}      # workload -> program

    def command(self, words):
        return [w.replace("{build}", str(self.build)) for w in words]

    def missing(self):
        return None if shutil.which(self.spec["requires"]) else f"{self.spec['requires']} is not installed"

    def prepare(self):
        self.build.mkdir(parents=True, exist_ok=True)
        log = self.build / "build.log"
        with log.open("wb") as f:
            for words in self.spec["build"]:
                if subprocess.run(self.command(words), cwd=self.folder, stdout=f, stderr=f).returncode:
                    f.flush()
                    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                    raise Failure(f"building {self.name} failed ({log}):\n{tail}")
        pattern = pathlib.Path(self.command([self.spec["programs"]])[0])
        for program in sorted(pattern.parent.glob(pattern.name)):
            if program.is_file() and os.access(program, os.X_OK):
                for workload in self.execute([program, "--list"], None).split():
                    self.programs[workload] = program
        if not self.programs:
            raise Failure(f"building {self.name} left no program at {pattern}")

    def version(self):
        done = subprocess.run(self.command(self.spec["version"]), cwd=self.folder, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else "unknown"

    def execute(self, words, procs):
        """A bare environment, so that nobody's GOGC or WEFT_DEBUG plays a part."""
        env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")}
        if procs:
            env[self.spec["procs_env"]] = str(procs)
        try:
            done = subprocess.run([str(w) for w in words], env=env, capture_output=True, text=True, timeout=RUN_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Failure(f"no end after {RUN_TIMEOUT} s") from None
        if done.returncode:
            raise Failure(f"exit status {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def measure(self, workload, n, procs):
        return {metric: (float(value), unit)
                for metric, value, unit in RESULT.findall(self.execute([self.programs[workload], workload, n], procs))}


def prepare_systems(options):
    """The systems that can run, and a word on each that cannot. Only weft must be there if it was asked for."""
    folders = [HERE / "weft"] + sorted(p.parent for p in HERE.glob("peers/*/system.json"))
    systems, skipped = [], {}
    for folder in folders:
        if options.systems and folder.name not in options.systems:
            continue
        system = System(folder, options.out)
        progress(f"building {system.name}")
        try:
            reason = system.missing()
            if reason:
                raise Failure(reason)
            system.prepare()
            systems.append(system)
        except Failure as e:
            if system.name == SUBJECT:
                raise
            skipped[system.name] = str(e)
    return systems, skipped


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
        runs.setdefault((row.workload, row.n[options.full], row.procs or options.procs), []).append(row)
    plan = [(run, system) for run in runs for system in systems if run[0] in system.programs]
    backwards = [(run, system) for run in runs for system in systems[::-1] if (run, system) in plan]
    samples, failed, start, longest, finished = Samples(), set(), time.monotonic(), 0, 0
    try:
        for number in range(options.rounds):
            begun = time.monotonic()
            if options.budget and number and begun - start + longest > options.budget:
                break
            progress(f"round {number + 1} of {options.rounds} begins")
            for run, system in backwards if number % 2 else plan:
                if (run, system) in failed:
                    continue
                spent = time.monotonic() - start
                left = spent / max(finished, 1) * (options.rounds * len(plan) - finished)
                left = min(left, options.budget - spent) if options.budget else left
                progress(f"round {number + 1} of {options.rounds}: {runs[run][0].name} in {system.name}, {spent:.0f} s so far"
                         + (f", about {max(left, 0):.0f} s left" if finished > 3 else ""))
                figures = {}
                try:
                    figures = system.measure(*run)
                except Failure as e:
                    failed.add((run, system))
                    samples.failures.update({(row.name, system.name): str(e) for row in runs[run]})
                for row in runs[run]:
                    samples.add(row, system.name, figures)
                finished += 1
            longest = max(longest, time.monotonic() - begun)
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
    if own and len(own["samples"]) < 3:
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
        table.append({"name": row.name, "what": row.what, "unit": row.unit, "n": row.n[options.full],
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
    for row in table:
        lines.append([row["name"], row["unit"]] + [cell(row["results"].get(s.name)) for s in systems]
                     + [f"{row['ratio']['median']:.2f}" if row["ratio"] else "-", goal(row),
                        f"{row['best_other']:g}" if row["best_other"] is not None else "", row["verdict"]])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(w.ljust(n) if i < 2 or i == len(line) - 1 else w.rjust(n)
                        for i, (w, n) in enumerate(zip(line, widths))).rstrip())
    print(f"\nMedians; in brackets the width of the middle half of the rounds. {SUBJECT}/{BASE}: median of the rounds' ratios.")


def first_match(path, pattern, default="unknown"):
    try:
        found = re.search(pattern, pathlib.Path(path).read_text(), re.M)
    except OSError:
        return default
    return found.group(1) if found else default


def machine():
    return {"cpu": first_match("/proc/cpuinfo", r"^model name\s*:\s*(.+)$", platform.machine()),
            "cpus": len(os.sched_getaffinity(0)), "arch": platform.machine(), "kernel": platform.release(),
            "os": first_match("/etc/os-release", r'^PRETTY_NAME="?([^"\n]+)'),
            "memory_kib": int(first_match("/proc/meminfo", r"^MemTotal:\s*(\d+)", "0"))}


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
    mode.add_argument("--full", action="store_true", help="full sizes and more rounds")
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose name matches")
    parser.add_argument("--rounds", type=int, metavar="N", help="7 for --quick, 15 for --full")
    parser.add_argument("--procs", type=int, metavar="N", help="for rows that do not set their own; else each system's default")
    parser.add_argument("--systems", metavar="A,B", help="only these; else weft and every peer found")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="where to build and to write results")
    parser.add_argument("--check", action="store_true", help="exit with 1 unless every bar is met")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.systems = options.systems.split(",") if options.systems else None
    options.budget = None if options.full or options.rounds else QUICK_SECONDS
    options.rounds = options.rounds or (15 if options.full else 7)
    return options


def main():
    options = parse_options()
    rows = [r for r in ROWS if re.search(options.only, r.name)]
    try:
        systems, skipped = prepare_systems(options)
    except Failure as e:
        progress("")
        sys.exit(str(e))
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
    sys.exit(1 if samples.failures or (options.check and unmet) else 0)


if __name__ == "__main__":
    main()
