#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a trace of debug::trace is possible: that this could have happened.

    check_trace.py FILE...              prints what is wrong, exit status 1
    check_trace.py --summary FILE       and how often each thing happened
    check_trace.py --events FILE        every event, one a line, in order of time
    check_trace.py --self-test

The rules (CONFORMANCE TRC-02):
  1. The times of one ring rise strictly; events of all rings are put in order of time.
  2. A goroutine comes from the state that its last event took it to, and a processor likewise.
  3. At most one goroutine and one processor at a time on a thread; a goroutine runs only where a
     processor has a thread.
  4. Slices nest on their track, and a goroutine's regions are closed before it ends.
  5. After the first sync nobody is in a state that is not known.
  6. A sync shows everybody in the state in which the events left them, and leaves nobody out.
After records were lost nothing is known until the next sync.
"""
import sys
from collections import Counter

TP, TM, TG, SYNCS = 1024, 1 << 16, 1 << 32, 5
BEGIN, END, INSTANT = 1, 2, 3


# -- protobuf

def fields(data):
    """Yields (number, value) of a message: ints, or bytes."""
    at, end = 0, len(data)
    while at < end:
        key = shift = 0
        while True:
            byte = data[at]
            at += 1
            key |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                break
        kind = key & 7
        if kind == 0:
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7f) << shift
                shift += 7
                if byte < 0x80:
                    break
        elif kind == 2:
            size = shift = 0
            while True:
                byte = data[at]
                at += 1
                size |= (byte & 0x7f) << shift
                shift += 7
                if byte < 0x80:
                    break
            value = data[at:at + size]
            if len(value) != size:
                raise ValueError("the file ends in the middle of a message")
            at += size
        elif kind == 1:
            value = int.from_bytes(data[at:at + 8], "little")
            at += 8
        else:
            raise ValueError(f"wire type {kind}")
        yield key >> 3, value


class Sequence:
    """One ring's packets: its tables and its clock."""

    def __init__(self):
        self.names, self.args, self.strings = {}, {}, {}
        self.clock = None
        self.last = None

    def learn(self, data):
        tables = {2: self.names, 3: self.args, 29: self.strings}
        for number, entry in fields(data):
            pair = dict(fields(entry))
            tables[number][pair[1]] = pair[2].decode(errors="replace")


class Event:
    __slots__ = ("time", "ring", "kind", "track", "name", "args")

    def __init__(self, time, ring, kind, track, name, args):
        self.time, self.ring, self.kind = time, ring, kind
        self.track, self.name, self.args = track, name, args

    def __str__(self):
        what = {BEGIN: "begin", END: "end", INSTANT: "at"}[self.kind]
        args = " ".join(f"{k}={v!r}" for k, v in self.args.items())
        return f"{self.time} ring={self.ring} track={track_name(self.track)} {what} {self.name or ''} {args}"


def track_name(uuid):
    if uuid >= TG:
        return f"G{uuid - TG}"
    if uuid >= TM:
        return f"M{uuid - TM}"
    return f"P{uuid - TP}" if uuid >= TP else "syncs"


def read_event(data, seq):
    kind = track = name = None
    args = {}
    for number, value in fields(data):
        if number == 9:
            kind = value
        elif number == 11:
            track = value
        elif number == 10:
            name = seq.names[value]
        elif number == 23:
            name = value.decode(errors="replace")
        elif number == 4:
            a = dict(fields(value))
            text = a.get(6)
            args[seq.args[a[1]]] = (text.decode(errors="replace") if text is not None
                                    else seq.strings[a[17]] if 17 in a else a.get(3, 0))
    return kind, track, name, args


def read(data, bad):
    """All events in order of time; what is wrong with their times goes to bad."""
    sequences, events = {}, []
    for number, packet in fields(data):
        if number != 1:
            raise ValueError(f"field {number} where packets should be")
        parts = list(fields(packet))
        flat = dict(parts)
        seq = sequences.setdefault(flat[10], Sequence())
        if flat.get(13, 0) & 1:
            if seq.clock is not None:
                bad.append(f"ring {flat[10] - 1}: begins twice")
            for _, reading in fields(flat[6]):
                clock = dict(fields(reading))
                if clock[1] == 64:
                    seq.clock = clock[2]
        for field, value in parts:
            if field == 12:
                seq.learn(value)
        if 11 not in flat:
            continue
        delta = flat[8]
        seq.clock += delta
        if delta <= 0 or delta >= 1 << 62:
            bad.append(f"ring {flat[10] - 1}: the time does not rise at {seq.clock}")
        events.append(Event(seq.clock, flat[10] - 1, *read_event(flat[11], seq)))
    # What was lost is missing from then on.
    events += [Event(e.args["since"] + 1, e.ring, INSTANT, SYNCS, "lost", {"n": 0})
               for e in events if e.name == "lost"]
    events.sort(key=lambda e: e.time)
    return events


# -- the rules

class World:
    def __init__(self, bad):
        self.bad = bad
        self.count = Counter()
        self.synced = False
        self.syncs = 0
        self.lost = 0
        self.forget()

    def forget(self):
        self.g = {}          # goid -> state
        self.on_p = {}       # P -> goid that runs
        self.p = {}          # P -> M, or None
        self.m_has = {}      # M -> P
        self.calls = {}      # M -> goid in a system call
        self.doing = {}      # M -> what it does besides
        self.heard_of = set()  # Ms: what they do is known
        self.regions = {}    # goid -> open regions
        self.older = set()   # goroutines of the first picture: what they had begun by then is not known
        self.seen = None     # during a sync: who was shown

    def wrong(self, e, text):
        self.bad.append(f"{e}: {text}")

    def move(self, e, g, came, to):
        was = self.g.get(g)
        if was is None:
            if self.synced and came != "dead":
                self.wrong(e, f"goroutine {g} was never heard of")
        elif was != came:
            self.wrong(e, f"goroutine {g} goes from {came} to {to}, but it was {was}")
        if to == "dead":
            self.g.pop(g, None)
            self.older.discard(g)
            if self.regions.pop(g, None):
                self.wrong(e, f"goroutine {g} ends with an open region")
        else:
            self.g[g] = to

    def on_processor(self, e):
        p, name = e.track - TP, e.name
        if e.kind == BEGIN and name.startswith("M"):
            m = int(name[1:])
            if self.seen is None:
                if self.p.get(p) is not None:
                    self.wrong(e, f"P{p} starts on M{m}, but M{self.p[p]} has it")
                elif self.synced and p not in self.p:
                    self.p[p] = None     # more of them than before
                if self.m_has.get(m) is not None:
                    self.wrong(e, f"M{m} gets P{p}, but it has P{self.m_has[m]}")
            self.p[p] = m
            self.m_has[m] = p
        elif e.kind == BEGIN:
            g = int(name[1:].split(" ")[0])
            if self.seen is None:
                self.move(e, g, e.args.get("from", "runnable"), "running")
            if p in self.on_p and self.seen is None:
                self.wrong(e, f"P{p} runs goroutine {g} and goroutine {self.on_p[p]}")
            if self.synced and self.p.get(p) is None:
                self.wrong(e, f"P{p} runs goroutine {g} and has no thread")
            self.on_p[p] = g
        elif "g" in e.args:
            g = e.args["g"]
            if self.on_p.get(p, None if self.synced else g) != g:
                self.wrong(e, f"goroutine {g} leaves P{p}, which runs {self.on_p.get(p)}")
            self.on_p.pop(p, None)
            self.move(e, g, "running", e.args["to"])
        else:
            if p in self.on_p:
                self.wrong(e, f"P{p} stops while goroutine {self.on_p[p]} runs")
            if self.synced and self.p.get(p) is None:
                self.wrong(e, f"P{p} stops and was idle")
            self.m_has.pop(self.p.get(p), None)
            self.p[p] = None

    def on_thread(self, e):
        m, name = e.track - TM, e.name
        if e.kind == INSTANT:
            g = e.args.get("g")
            if name == "ready":
                self.move(e, g, "waiting", "runnable")
            elif name == "go":
                if self.g.get(g) is not None:
                    self.wrong(e, f"goroutine {g} starts, but it was {self.g[g]}")
                self.g[g] = "runnable"
        elif e.kind == BEGIN and name.startswith("syscall G"):
            if self.seen is None and (m in self.calls or m in self.doing):
                self.wrong(e, f"M{m} does two things at once")
            self.calls[m] = int(name[9:])
        elif e.kind == BEGIN:
            if m in self.calls or m in self.doing:
                self.wrong(e, f"M{m} does two things at once")
            self.doing[m] = name
            self.heard_of.add(m)
        elif "g" in e.args:
            g = e.args["g"]
            if self.calls.pop(m, None if self.synced else g) != g:
                self.wrong(e, f"goroutine {g} comes back on M{m}, where it was not")
            if e.args["to"] != "running":     # then the processor's track has it
                self.move(e, g, "syscall", e.args["to"])
        else:
            if self.doing.pop(m, None) is None and m in self.heard_of:
                self.wrong(e, f"M{m} ends what it has not begun")
            self.heard_of.add(m)

    def on_goroutine(self, e):
        g = e.track - TG
        if e.kind == BEGIN:
            self.regions.setdefault(g, []).append(e.name)
        elif e.kind == END:
            if self.regions.get(g):
                self.regions[g].pop()
            elif self.synced and g not in self.older:
                self.wrong(e, f"goroutine {g} ends a region that it has not begun")

    def on_sync(self, e):
        name = e.name
        if name == "sync":
            self.seen = set()
            self.syncs += 1
        elif name == "sync end":
            if self.synced:
                for g, state in self.g.items():
                    if g not in self.seen:
                        self.wrong(e, f"goroutine {g} is {state}, and the sync does not show it")
            self.g = {g: s for g, s in self.g.items() if g in self.seen}
            self.synced, self.seen = True, None
        elif name == "status" and "g" in e.args:
            g, state = e.args["g"], e.args["to"]
            if self.synced and self.g.get(g) != state:
                self.wrong(e, f"goroutine {g} is shown as {state}, but it was {self.g.get(g)}")
            self.g[g] = state
            self.seen.add(g)
            if not self.synced:
                self.older.add(g)
            if not self.synced and state == "syscall" and "m" in e.args:
                self.calls[e.args["m"]] = g
            if not self.synced and state == "running":
                self.on_p[e.args["p"]] = g
        elif name == "status":
            p, m = e.args["p"], e.args.get("m")
            if self.synced and p in self.p and self.p[p] != m:
                self.wrong(e, f"P{p} is shown on M{m}, but it was on M{self.p[p]}")
            self.p[p] = m
            if m is not None:
                self.m_has[m] = p
        elif name == "run ends":
            self.calls.clear()
            for g in list(self.regions):
                del self.regions[g]
            self.g.clear()
            self.older.clear()
            self.on_p.clear()
            self.p.clear()
            self.m_has.clear()
        else:
            self.on_thread(e)

    def step(self, e):
        self.count[e.name if e.kind == INSTANT else
                   (e.name or "").rstrip("0123456789 ").split(" ")[0] + {BEGIN: " begins", END: " ends"}[e.kind]] += 1
        if e.name == "lost":
            self.lost += e.args["n"]
            self.synced = False
            self.forget()
        elif e.track == SYNCS:
            self.on_sync(e)
        elif e.track >= TG:
            self.on_goroutine(e)
        elif e.track >= TM:
            if e.name in ("run ends",):
                self.on_sync(e)
            else:
                self.on_thread(e)
        elif e.track >= TP:
            self.on_processor(e)


def check(data):
    bad = []
    try:
        events = read(data, bad)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        return [], World(bad), [f"not readable: {error!r}"]
    world = World(bad)
    for e in events:
        world.step(e)
    if not events:
        bad.append("no events")
    elif not world.syncs:
        bad.append("no sync")
    return events, world, bad


# -- self-test: each rule, broken

def packet(ring, delta, kind, track, name=None, first=False, **args):
    def varint(v):
        out = b""
        while v >= 0x80:
            out += bytes([v & 0x7f | 0x80])
            v >>= 7
        return out + bytes([v])

    def num(f, v):
        return varint(f << 3) + varint(v)

    def sub(f, b):
        return varint(f << 3 | 2) + varint(len(b)) + b
    out = b""
    keys = sorted(args)
    interned = b"".join(sub(3, num(1, i + 1) + sub(2, k.encode())) for i, k in enumerate(keys))
    event = num(9, kind) + num(11, track) + (sub(23, name.encode()) if name else b"")
    for i, k in enumerate(keys):
        v = args[k]
        event += sub(4, num(1, i + 1) + (num(3, v) if isinstance(v, int) else sub(6, v.encode())))
    if first:
        out += sub(1, num(10, ring + 1) + num(13, 1) + sub(6, sub(1, num(1, 64) + num(2, 1000))))
    return out + sub(1, sub(12, interned) + num(8, delta) + num(10, ring + 1) + sub(11, event))


def self_test():
    def trace(*middle, tail=()):
        head = [packet(0, 1, INSTANT, SYNCS, "sync", first=True, n=1),
                packet(0, 1, INSTANT, SYNCS, "status", p=0, to="running", m=3),
                packet(0, 1, BEGIN, TP, "M3"),
                packet(0, 1, INSTANT, SYNCS, "status", g=1, to="running", p=0),
                packet(0, 1, BEGIN, TP, "G1"),
                packet(0, 1, INSTANT, SYNCS, "status", g=2, to="waiting"),
                packet(0, 1, INSTANT, SYNCS, "sync end")]
        return b"".join([*head, *middle, *tail])
    ready = packet(0, 1, INSTANT, TM + 3, "ready", g=2)
    stop = packet(0, 1, END, TP, g=1, to="waiting")
    run2 = packet(0, 1, BEGIN, TP, "G2")
    new = packet(0, 1, INSTANT, TM + 3, "go", g=3)
    good = [[ready, stop, run2], [packet(0, 1, END, TG + 1)], [new],
            [packet(0, 1, INSTANT, SYNCS, "lost", n=4, since=1007), run2],
            [packet(0, 1, END, TP, g=1, to="syscall"), packet(0, 1, BEGIN, TM + 3, "syscall G1"),
             packet(0, 1, END, TP)]]
    broken = {
        "time": [packet(0, 0, INSTANT, TM + 3, "ready", g=2)],
        "from": [stop, run2],
        "two on a P": [ready, run2],
        "unknown": [packet(0, 1, INSTANT, TM + 3, "ready", g=9)],
        "wrong P": [packet(0, 1, END, TP + 1, g=1, to="waiting")],
        "P stops while it runs one": [packet(0, 1, END, TP)],
        "P on two threads": [packet(0, 1, BEGIN, TP, "M4")],
        "idle P runs": [stop, ready, packet(0, 1, END, TP), run2],
        "not begun": [packet(0, 1, BEGIN, TM + 3, "idle"), packet(0, 1, END, TM + 3), packet(0, 1, END, TM + 3)],
        "region left open": [packet(0, 1, BEGIN, TG + 1, "r"), packet(0, 1, END, TP, g=1, to="dead")],
        "region not begun": [new, packet(0, 1, END, TG + 3)],
        "sync disagrees": [packet(0, 1, INSTANT, SYNCS, "sync", n=2),
                           packet(0, 1, INSTANT, SYNCS, "status", g=1, to="waiting")],
        "sync forgets": [packet(0, 1, INSTANT, SYNCS, "sync", n=2),
                         packet(0, 1, INSTANT, SYNCS, "sync end")],
        "cut off": [ready[:-1]],
        "born twice": [packet(0, 1, INSTANT, TM + 3, "go", g=2)],
        "two things at once": [packet(0, 1, BEGIN, TM + 3, "idle"), packet(0, 1, BEGIN, TM + 3, "spinning")],
    }
    failed = [f"a good one is refused: {b[0]}" for m in good if (b := check(trace(*m))[2])]
    failed += [f"not found: {name}" for name, m in broken.items() if not check(trace(*m))[2]]
    if not check(b"")[2]:
        failed.append("an empty file passes")
    print("\n".join(failed) or f"check_trace: {len(good)} good and {len(broken)} broken traces are told apart")
    return 1 if failed else 0


def main(argv):
    if argv == ["--self-test"]:
        return self_test()
    options = {a for a in argv if a.startswith("--")}
    paths = [a for a in argv if not a.startswith("--")]
    if not paths or options - {"--summary", "--events"}:
        print(__doc__)
        return 2
    status = 0
    for path in paths:
        with open(path, "rb") as file:
            events, world, bad = check(file.read())
        if "--events" in options:
            for e in events:
                print(e)
        if "--summary" in options:
            print(f"{len(events)} events, {world.syncs} syncs, {world.lost} records lost")
            for name, n in sorted(world.count.items(), key=lambda kv: -kv[1]):
                print(f"{n:10} {name}")
        for line in bad[:20]:
            print(f"{path}: {line}")
        if len(bad) > 20:
            print(f"{path}: and {len(bad) - 20} more")
        status = status or (1 if bad else 0)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
