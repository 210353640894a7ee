#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the results of a run into README.md, between the marks, and its chart into docs/bench.svg.

  bench/readme.py [--results FILE] [--readme FILE] [--anyway]

The figures are those of build/bench/results.json, from the last `make bench` or `make bench-full`. A run during which other
programs used more than a tenth of the CPUs is refused: its figures say more about them.
"""
import argparse
import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True

import chart

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench: made by bench/readme.py -->\n", "<!-- bench: end -->"
TOO_BUSY = 0.10
HEADLINES = ["yield2", "yield10000", "spawn_join", "spawn_batch", "parked_bytes", "parked_spawn", "parked_wake", "chan_pingpong",
             "chan_buffered", "chan_unbuffered_4x4", "select4", "mutex100", "skynet", "sieve", "fib", "matmul", "timer_stop",
             "sleepers", "sleeper_p99", "sleeps_announced", "sleeps_unannounced", "idle1000", "echo1_p50", "echo64_rate",
             "echo64_p99", "echo10000_rate", "http64_rate", "startup", "binary_size"]
TITLES = {"weft": "weft", "go": "Go", "tokio": "Tokio", "boost_fiber": "Boost.Fiber", "erlang": "Erlang", "java": "Java, virtual threads",
          "threads": "std::thread", "epoll": "plain epoll"}


def cell(row, name):
    result = row["results"].get(name)
    return chart.number(result["median"]) if result else "–"


def table(results, rows, names):
    lines = ["| workload | unit | " + " | ".join(TITLES.get(n, n) for n in names) + " | weft / Go |",
             "|---|---|" + "---:|" * (len(names) + 1)]
    for row in rows:
        ratio = f"{row['ratio']['median']:.2f}" if row["ratio"] else "–"
        noisy = " ±" if "noisy" in row["verdict"] or "too few" in row["verdict"] else ""
        what = row["what"] + (" (more is better)" if row["higher"] else "")
        lines.append(f"| {what} | {row['unit']} | " + " | ".join(f"**{cell(row, n)}**" if n == "weft" else cell(row, n) for n in names)
                     + f" | {ratio}{noisy} |")
    return lines


def section(results):
    by_name = {r["name"]: r for r in results["rows"]}
    rows = [by_name[n] for n in HEADLINES if n in by_name and by_name[n]["results"]]
    if results["mode"] == "full":       # the descriptions give the sizes of the quick form in brackets
        rows = [{**r, "what": re.sub(r" \(quick: [^)]*\)", "", r["what"])} for r in rows]
    names = [n for n in TITLES if n in results["systems"]] + [n for n in results["systems"] if n not in TITLES]
    machine, command = results["machine"], "make bench-full" if results["mode"] == "full" else "make bench"
    versions = "; ".join(f"{TITLES.get(n, n)}: {v}" for n, v in results["systems"].items())
    headline = f"{results['date'][:10]} · {machine['cpus']} × {machine['cpu']} · Linux {machine['kernel']}"
    text = [f"{results['date'][:10]}, {machine['cpus']} × {machine['cpu']}, Linux {machine['kernel']}. {versions}.",
            f"Repeat it with `{command}`, and put it here with `make bench-readme`; [bench/README.md](bench/README.md) says how to read it.", "",
            "![each system in relation to Go](docs/bench.svg)", "", *table(results, rows, names), "",
            "Medians of the rounds of one run, in which the systems took turns. ±: the rounds lie so far apart that the figure is a hint."
            " –: the system has no such thing, or does it in no way of its own.", ""]
    return "\n".join(text), chart.relative(rows, names, headline)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build" / "bench" / "results.json")
    parser.add_argument("--readme", type=pathlib.Path, default=ROOT / "README.md")
    parser.add_argument("--anyway", action="store_true", help="even if the machine was busy")
    options = parser.parse_args()
    if not options.results.exists():
        sys.exit(f"no {options.results}: run `make bench-full` or `make bench` first")
    results = json.loads(options.results.read_text())
    load = results["load"] or {"others": 0, "stolen": 0}
    if max(load.values()) > TOO_BUSY and not options.anyway:
        sys.exit(f"other programs used {load['others']:.0%} of the CPUs during that run, the host kept {load['stolen']:.0%}: not a run to show")
    before, _, rest = options.readme.read_text().partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        sys.exit(f"{options.readme} has not the marks {BEGIN.strip()} and {END}")
    text, svg = section(results)
    options.readme.write_text(before + BEGIN + text + END + after)
    (options.readme.parent / "docs" / "bench.svg").write_text(svg)
    print(f"written: {options.readme} and docs/bench.svg")


if __name__ == "__main__":
    main()
