# SPDX-License-Identifier: Apache-2.0
"""The rows of `make bench`. A new workload is a row here and one function in each system (see README.md)."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    name: str               # of the row; also what the programs are asked for and print, unless said below
    what: str               # one line for the reader
    n: tuple                # second argument of the program: (quick, full)
    unit: str = "ns"
    bar: float = None       # weft / Go must not exceed this (must reach it, if higher is better)
    limit: float = None     # the same for weft's own figure
    best_other: float = None    # the best figure known of anybody but Go, on 2 cores of this kind, for orientation
    higher: bool = False    # higher is better
    procs: int = None       # None: whatever each system chooses by itself
    workload: str = None    # first argument of the program
    metric: str = None      # name in its RESULT line, where one program gives several figures

    def __post_init__(self):
        object.__setattr__(self, "workload", self.workload or self.name)
        object.__setattr__(self, "metric", self.metric or self.workload)


M = 1_000_000
YIELDS = (2 * M, 10 * M)    # in all, however many goroutines share them
LOCKS = (20 * M, 100 * M)   # likewise

ROWS = [
    Row("yield1", "one goroutine yields", YIELDS),
    Row("yield2", "2 goroutines yield", YIELDS, bar=0.20, best_other=11),
    Row("yield100", "100 goroutines yield", YIELDS, best_other=9),
    Row("yield10000", "10 000 goroutines yield", YIELDS, bar=0.12, best_other=22),
    Row("yield2_p1", "2 goroutines yield, one P", YIELDS, procs=1, workload="yield2", best_other=11),
    Row("yield10000_p1", "10 000 goroutines yield, one P", YIELDS, procs=1, workload="yield10000", best_other=32),
    Row("spawn_join", "spawn one, wait for it", (M, 5 * M), bar=0.25, best_other=88),
    Row("spawn_join_p1", "spawn one, wait for it, one P", (M, 5 * M), procs=1, workload="spawn_join", best_other=88),
    Row("spawn_batch", "spawn 3 M, wait for all", (3 * M, 3 * M), bar=0.35, best_other=168),
    # Fewer of them: with one P all may be alive before the first one runs.
    Row("spawn_batch_p1", "spawn 300 k, wait for all, one P", (300_000, 300_000), procs=1, workload="spawn_batch"),
    Row("parked_bytes", "parked goroutines: memory each", (200_000, M), "B", workload="parked", metric="parked_bytes", best_other=2690),
    Row("parked_spawn", "parked goroutines: start each", (200_000, M), workload="parked", metric="parked_spawn", best_other=199),
    Row("parked_wake", "parked goroutines: wake each", (200_000, M), workload="parked", metric="parked_wake", best_other=86),
    Row("chan_pingpong", "unbuffered round trip", (500_000, 2 * M), bar=0.30, best_other=178),
    Row("chan_buffered", "buffered 128, 1 to 1", (2 * M, 10 * M), bar=0.5, best_other=21),
    Row("chan_buffered_4x4", "buffered 128, 4 to 4", (2 * M, 10 * M), bar=0.7),
    Row("chan_unbuffered_4x4", "unbuffered, 4 to 4", (M, 4 * M), bar=0.5),
    Row("select4", "select over 4 channels", (500_000, 2 * M), bar=0.5),
    Row("select_default", "select with default, not ready", (10 * M, 50 * M), bar=1.0),
    Row("close_wakes", "close wakes 1 M receivers, each", (200_000, M), bar=0.5, best_other=86),
    Row("skynet", "skynet, a million leaves", (M, M), "ms", bar=0.4, best_other=283),
    Row("sieve", "prime sieve of 2500", (2500, 2500), "ms", bar=0.4),
    Row("mutex1", "lock and unlock, alone", LOCKS, bar=1.0, best_other=8),
    Row("mutex2", "2 goroutines lock and unlock", LOCKS, bar=1.0, best_other=10),
    Row("mutex100", "100 goroutines lock and unlock", LOCKS, bar=0.7, best_other=10),
    Row("timer_stop", "timer: create and stop", (M, 5 * M), bar=0.3, best_other=74),
    Row("sleepers", "a million sleep 1 to 1000 ms", (200_000, M), "ms", bar=0.6, best_other=2039),
    Row("echo1", "TCP, 64 bytes there and back, one connection", (100_000, 500_000)),
    Row("echo64", "TCP, 64 bytes there and back, 64 connections", (200_000, M)),
    Row("context_cancel", "context: create and cancel", (500_000, 2 * M), bar=1.0),
    Row("handoff", "wake one on an idle P, compute on", (50_000, 200_000), bar=1.0),
    Row("blocking_getppid", "a system call that does not block, announced", (M, 5 * M), bar=1.0),
    Row("blocking_over_raw", "the same: by how much it is dearer than unannounced", (M, 5 * M), limit=25),
    # n sleeps of 5 ms by each of 200 goroutines.
    Row("sleeps_announced", "200 goroutines sleep in the kernel, announced", (10, 10), "ms", bar=1.1),
    Row("sleeps_unannounced", "200 goroutines sleep in the kernel, unannounced", (10, 10), "ms", limit=250),
    Row("sleeper_p50", "1 ms sleeper beside two endless loops: late, p50", (300, 2_000), "ms", limit=1.5,
        workload="sleeper", metric="sleeper_p50"),
    Row("sleeper_p99", "1 ms sleeper beside two endless loops: late, p99", (300, 2_000), "ms", limit=3,
        workload="sleeper", metric="sleeper_p99"),
    # n is milliseconds. 2 ms of CPU in 10 s is the limit.
    Row("idle1000", "1000 parked goroutines: CPU used", (2_000, 10_000), "us/s", limit=200, best_other=30),
]
