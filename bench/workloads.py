# SPDX-License-Identifier: Apache-2.0
"""The rows of `make bench`. A new workload is a row here and one function in each system (see README.md)."""
from dataclasses import dataclass, replace
from typing import NamedTuple


class Run(NamedTuple):
    """One start of a program. Several rows may read their figures from it."""
    workload: str
    n: int
    procs: int
    load: tuple


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

    load: tuple = None      # (echo or http, connections): what bench/load sends to the server that the workload is
    quick: bool = True      # also in the quick form
    group: str = ""

    def __post_init__(self):
        object.__setattr__(self, "workload", self.workload or self.name)
        object.__setattr__(self, "metric", self.metric or self.workload)

    def run(self, full, procs):
        return Run(self.workload, self.n[full], self.procs or procs, self.load)


M = 1_000_000
YIELDS = (M, 10 * M)        # in all, however many goroutines share them
LOCKS = (10 * M, 100 * M)   # likewise
PARKED = (100_000, M)


def network(name, kind, conns, n, what, quick):
    """Throughput and the two percentiles, from one run of the load generator."""
    def row(metric, unit, **more):
        return Row(f"{name}_{metric}", f"{what}: {metric}", n, unit, workload=f"serve_{kind}", metric=metric,
                   load=(kind, conns), quick=quick, **more)
    return [row("rate", "1/s", higher=True), row("p50", "us"), row("p99", "us")]


GROUPS = {
    "Goroutines": [
        Row("yield1", "one goroutine yields", YIELDS),
        Row("yield2", "2 goroutines yield", YIELDS, bar=0.20, best_other=11),
        Row("yield100", "100 goroutines yield", YIELDS, best_other=9),
        Row("yield10000", "10 000 goroutines yield", YIELDS, bar=0.12, best_other=22),
        Row("yield2_p1", "2 goroutines yield, one P", YIELDS, procs=1, workload="yield2", best_other=11, quick=False),
        Row("yield10000_p1", "10 000 goroutines yield, one P", YIELDS, procs=1, workload="yield10000", best_other=32, quick=False),
        Row("spawn_join", "spawn one, wait for it", (300_000, 5 * M), bar=0.25, best_other=88),
        Row("spawn_join_p1", "spawn one, wait for it, one P", (300_000, 5 * M), procs=1, workload="spawn_join", best_other=88, quick=False),
        Row("spawn_batch", "spawn 3 M (quick: 500 k), wait for all", (500_000, 3 * M), bar=0.35, best_other=168),
        # Fewer of them: with one P all may be alive before the first one runs.
        Row("spawn_batch_p1", "spawn 300 k, wait for all, one P", (300_000, 300_000), procs=1, workload="spawn_batch", quick=False),
        Row("parked_bytes", "a million parked (quick: 100 k): memory each", PARKED, "B", workload="parked", metric="parked_bytes", best_other=2690),
        Row("parked_spawn", "a million parked (quick: 100 k): start each", PARKED, workload="parked", metric="parked_spawn", best_other=199),
        Row("parked_wake", "a million parked (quick: 100 k): wake each", PARKED, workload="parked", metric="parked_wake", best_other=86),
        Row("handoff", "wake one on an idle P, compute on", (20_000, 200_000), bar=1.0),
        # n is milliseconds. 2 ms of CPU in 10 s is the limit.
        Row("idle1000", "1000 parked goroutines: CPU used", (1_000, 10_000), "us/s", limit=200, best_other=30),
    ],
    "Channels": [
        Row("chan_pingpong", "unbuffered round trip", (200_000, 2 * M), bar=0.30, best_other=178),
        Row("chan_buffered", "buffered 128, 1 to 1", (M, 10 * M), bar=0.5, best_other=21),
        Row("chan_buffered_4x4", "buffered 128, 4 to 4", (M, 10 * M), bar=0.7),
        Row("chan_unbuffered_4x4", "unbuffered, 4 to 4", (300_000, 4 * M), bar=0.5),
        Row("select4", "select over 4 channels", (200_000, 2 * M), bar=0.5),
        Row("select_default", "select with default, not ready", (5 * M, 50 * M), bar=1.0),
        Row("close_wakes", "close wakes 1 M receivers (quick: 100 k), each", PARKED, bar=0.5, best_other=86),
    ],
    "Programs": [
        Row("skynet", "skynet, a million leaves (quick: 100 k)", PARKED, "ms", bar=0.4, best_other=283),
        Row("sieve", "prime sieve of 2500 (quick: 1000)", (1000, 2500), "ms", bar=0.4),
        Row("fib", "fork and join: fib(32), in sequence from 12 down", (32, 32), "ms"),
        Row("matmul", "matrix product of 512 (quick: 256), split down to 8", (256, 512), "ms"),
    ],
    "Locks": [
        Row("mutex1", "lock and unlock, alone", LOCKS, bar=1.0, best_other=8),
        Row("mutex2", "2 goroutines lock and unlock", LOCKS, bar=1.0, best_other=10),
        Row("mutex100", "100 goroutines lock and unlock", LOCKS, bar=0.7, best_other=10),
        Row("context_cancel", "context: create and cancel", (300_000, 2 * M), bar=1.0),
    ],
    "Time": [
        Row("timer_stop", "timer: create and stop", (500_000, 5 * M), bar=0.3, best_other=74),
        Row("sleepers", "a million (quick: 100 k) sleep 1 to 1000 ms", PARKED, "ms", bar=0.6, best_other=2039),
        Row("sleeper_p50", "1 ms sleeper beside two endless loops: late, p50", (60, 2_000), "ms", limit=1.5,
            workload="sleeper", metric="sleeper_p50"),
        Row("sleeper_p99", "1 ms sleeper beside two endless loops: late, p99", (60, 2_000), "ms", limit=3,
            workload="sleeper", metric="sleeper_p99"),
    ],
    "System calls": [
        Row("blocking_getppid", "a system call that does not block, announced", (500_000, 5 * M), bar=1.0),
        Row("blocking_over_raw", "the same: by how much it is dearer than unannounced", (500_000, 5 * M), limit=25),
        # n sleeps of 5 ms by each of 200 goroutines.
        Row("sleeps_announced", "200 goroutines sleep 10 (quick: 4) times 5 ms in the kernel, announced", (4, 10), "ms", bar=1.1),
        Row("sleeps_unannounced", "200 goroutines sleep 10 (quick: 4) times 5 ms in the kernel, unannounced", (4, 10), "ms", limit=250),
    ],
    "Network": [
        *network("echo1", "echo", 1, (10_000, 200_000), "64-byte echo, one connection", True),
        *network("echo64", "echo", 64, (30_000, 500_000), "64-byte echo, 64 connections", True),
        *network("echo1000", "echo", 1000, (30_000, 500_000), "64-byte echo, 1000 connections", False),
        *network("echo10000", "echo", 10_000, (50_000, 500_000), "64-byte echo, 10 000 connections", False),
        *network("http64", "http", 64, (20_000, 300_000), "HTTP, 64 connections", True),
        Row("roundtrip1", "TCP, 64 bytes there and back, both ends in one program", (10_000, 500_000), quick=False),
        Row("roundtrip64", "TCP, 64 bytes there and back, 64 connections in one program", (20_000, M), quick=False),
    ],
    "The least program": [
        Row("startup", "one goroutine: from fork to exit", (20, 100), "us"),
        Row("binary_size", "one goroutine: size of the program, stripped, without shared libraries", (1, 1), "KiB"),
    ],
}

# The workloads of the benchmarks that Go ships with its runtime, sync, time, context and net; in the full form only.
# How often, quick and full; what one of them costs decides.
TINY, SHORT, MIDDLE, LONG, HUGE = (2 * M, 20 * M), (200_000, 2 * M), (20_000, 200_000), (2_000, 20_000), (200, 2_000)
GO_LIST = {
    TINY: {"chan_nonblocking": "receive from an empty channel, not blocking", "chan_closed": "receive from a closed channel",
           "syscall": "announced getppid", "syscall_excess": "the same, four goroutines a P",
           "mutex_uncontended": "lock of one's own", "mutex": "one lock", "mutex_slack": "one lock, ten goroutines a P",
           "rwmutex_uncontended": "read-write lock of one's own", "rwmutex_write100": "read-write lock, 1 in 100 writes",
           "rwmutex_write10": "read-write lock, 1 in 10 writes", "semaphore_uncontended": "semaphore of one's own",
           "wg_uncontended": "wait group of one's own", "wg_add_done": "one wait group, add and done", "wg_wait": "wait for an empty group",
           "once": "once, done", "once_value": "once_value, done", "context_canceled": "err of a cancelled context",
           "context_done": "is a context done", "select_nonblock": "four selects with default"},
    SHORT: {"pingpong_hog": "ping-pong beside a loop of selects", "create_chain": "each goroutine starts the next",
            "create_chains": "the same, a chain a P", "create_capture": "4 goroutines at a time", "stack_10": "10 frames of 1 KiB on a new stack",
            "make_chan": "make a channel of 8", "select_uncontended": "select over two channels of one's own",
            "select_async_contended": "select over two shared channels, buffered", "select_sync_contended": "select over three shared channels, unbuffered",
            "chan_sync": "two take turns to send and receive", "prodcons_0": "producers and consumers, unbuffered",
            "prodcons_10": "producers and consumers, 10", "prodcons_100": "producers and consumers, 100",
            "prodcons_work_0": "the same with work, unbuffered", "prodcons_work_10": "the same with work, 10",
            "prodcons_work_100": "the same with work, 100", "select_prodcons": "producers and consumers through select",
            "drain_closed": "drain a closed channel", "chan_creation": "make a channel, send, receive", "chan_semaphore": "a channel as semaphore",
            "syscall_work": "announced getppid, work", "syscall_excess_work": "the same, four goroutines a P",
            "mutex_work": "one lock, work", "mutex_work_slack": "one lock, work, ten goroutines a P", "mutex_no_spin": "one lock in four, the others yield",
            "rwmutex_work_write100": "read-write lock, work, 1 in 100 writes", "rwmutex_work_write10": "read-write lock, work, 1 in 10 writes",
            "semaphore_contended": "one semaphore", "wg_add_done_work": "one wait group, add, work, done", "wg_wait_work": "wait for an empty group, work",
            "wg_actually_wait": "wait for one goroutine", "cond_1": "rotating barrier of 2", "timer_stop_chan": "timer made and stopped, among many",
            "timer_stop_func": "after_func made and stopped, among many", "timer_start_stop": "1000 timers made, then stopped, each",
            "timer_reset": "timer reset, among many", "after": "after(1 ns)", "after_func_chain": "each after_func starts the next",
            "after_func_at_once": "1000 after_func at once, each", "sleep1000": "1000 sleep for 1 ns, each", "ticker": "ticker of 1 ns",
            "ticker_reset": "ticker reset", "context_common_parent": "children of one context", "context_tree_1": "context tree of depth 1",
            "context_value_10": "value 10 contexts up", "context_value_100": "value 100 contexts up", "set_read_deadline": "move a read deadline"},
    MIDDLE: {"chan_popular": "1000 wait for one channel and their own", "cond_8": "rotating barrier of 9", "mutex_spin": "one lock, 128 KiB touched",
             "chan_sync_work": "two take turns to send and receive, work", "chan_uncontended": "100 in, 100 out, a channel of one's own",
             "chan_contended": "100 in, 100 out, one channel", "context_tree_10": "context tree of depth 10",
             "context_timeout_40": "10 timeouts made and cancelled, among 40", "context_timeout_4000": "10 timeouts made and cancelled, among 4000",
             "context_timeout_400000": "10 timeouts made and cancelled, among 400 000", "tcp_persistent": "TCP, 512 bytes there and back",
             "tcp_persistent_timeout": "TCP, 512 bytes there and back, with a deadline", "tcp_concurrent": "TCP, reader and writer at both ends",
             "wakeup_spin_0": "sender and receiver change roles"},
    LONG: {"stack_1024": "1024 frames of 1 KiB on a new stack", "cond_32": "rotating barrier of 33", "wakeup_spin_10": "the same, busy for 10 us",
           "wakeup_spin_100": "the same, busy for 100 us", "wakeup_syscall_10": "the same, 10 us in the kernel",
           "wakeup_syscall_100": "the same, 100 us in the kernel", "context_tree_100": "context tree of depth 100",
           "tcp_oneshot": "TCP, dial, 512 bytes there and back, close", "tcp_oneshot_timeout": "the same with a deadline"},
    HUGE: {"context_tree_1000": "context tree of depth 1000"},
}
GROUPS["Go's own list"] = [Row(f"list_{name}", what, n, quick=False) for n, rows in GO_LIST.items() for name, what in rows.items()] + [
    Row("list_timer_latency", "timer of 1 ms while its maker computes: late", (200, 2_000), "us", quick=False)]

ROWS = [replace(row, group=group) for group, rows in GROUPS.items() for row in rows]
