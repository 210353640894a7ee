# SPDX-License-Identifier: Apache-2.0
"""gdb and goroutines, in live processes and core files:

    (gdb) source tools/weft-gdb.py
    (gdb) info goroutines
    (gdb) goroutine 12 bt
    (gdb) goroutine all bt

Nothing is run in the process and nothing is written to it: a goroutine that does not run is shown by
an unwinder that takes the registers which the switch has saved on its stack (context/context.h,
switch_frame) for those of the selected thread. The library needs its debug information.
"""
import gdb
from gdb.unwinder import Unwinder

ALIVE = {1: "runnable", 2: "running", 3: "syscall", 4: "waiting", 8: "copystack", 9: "preempted",
         10: "leaked"}
RUNNING, SYSCALL = 2, 3
# wait_reason of core/status.h, in its order. (GCC leaves the enumerators out of some units.)
REASONS = ["waiting", "task wait", "scope wait", "stopping the world", "semacquire", "chan receive",
           "chan send", "chan receive (nil chan)", "chan send (nil chan)", "select",
           "select (no cases)", "sleep", "sync.Mutex.Lock", "sync.RWMutex.RLock",
           "sync.RWMutex.Lock", "sync.Cond.Wait", "sync.WaitGroup.Wait", "semacquire", "IO wait"]

# What weft_switch keeps: (register, offset in switch_frame); the size of the frame; sp, pc.
LAYOUT = {
    "i386:x86-64": ([("r15", 8), ("r14", 16), ("r13", 24), ("r12", 32), ("rbx", 40), ("rbp", 48),
                     ("rip", 56)], 64, "rsp", "rip"),
    "aarch64": ([(f"x{19 + i}", 8 * i) for i in range(10)] + [("x29", 80), ("pc", 88)], 176, "sp", "pc"),
}


def load(value):
    """The value of a std::atomic, whatever it is made of."""
    t = value.type.strip_typedefs()
    names = [f.name for f in t.fields()]
    if "_M_i" in names:
        return value["_M_i"]
    if "_M_b" in names:
        inner = value["_M_b"]
        return inner["_M_p"] if "_M_p" in [f.name for f in inner.type.strip_typedefs().fields()] else load(inner)
    return load(value[t.fields()[0]])       # atomic<integer>: a base class


def sched():
    symbol = gdb.lookup_global_symbol("weft::rt::sched")
    if symbol is None:
        raise gdb.GdbError("no weft::rt::sched here: is the program linked with weft, with debug information?")
    return symbol.value()


class Goroutine:
    def __init__(self, g):
        self.g = g
        self.id = int(g["goid"])
        self.status = int(load(g["status"])) & 0xfff
        self.m = load(g["m"])
        self.kept = bool(g["kept"])

    @property
    def name(self):
        return self.g["name"].string() if bool(load(self.g["named"])) else ""

    @property
    def thread(self):
        """The thread that it stands on, or 0."""
        if int(self.m) != 0:
            return int(load(self.m["tid"]))
        if self.kept:               # stopped by a signal: its M has it still
            for m in machines():
                if int(m["curg"]) == int(self.g.address):
                    return int(load(m["tid"]))
        return 0

    def state(self):
        if self.status in (4, 10):
            why = int(self.g["reason"])
            return (REASONS[why] if why < len(REASONS) else "waiting") + (" (leaked)" if self.status == 10 else "")
        return ALIVE[self.status] + (", stopped by a signal" if self.kept else "")

    def where(self):
        """Function and line that it goes on at."""
        frames = self.frames()
        return describe(next((f for f in frames if is_users(f)), frames[0])) if frames else ""

    def frames(self):
        if self.thread != 0:
            return thread_frames(self.thread)
        sp = int(self.g["sp"])
        if sp == 0:
            return []               # not begun yet
        return OVERRIDE.frames(sp)


def machines():
    m = load(sched()["allm"])
    while int(m) != 0:
        yield m.dereference()
        m = m.dereference()["all_next"]


def goroutines():
    """All that are alive, by number."""
    s = sched()
    run = int(load(s["run_id"]))
    found = []
    for cell in cells(s["gs"]):
        if int(load(cell["status"])) & 0xfff in ALIVE and int(load(cell["run_id"])) == run:
            found.append(Goroutine(cell))
    return sorted(found, key=lambda g: g.id)


def cells(slab):
    """The cells of a rt::slab (base/slab.h), carved ones only."""
    t = slab.type.strip_typedefs().template_argument(0)
    head = gdb.lookup_type(f"{slab.type.strip_typedefs()}::head")
    block_bytes, align = 64 * 1024, 64

    def head_bytes(n):
        return (head.sizeof + 4 * n + align - 1) // align * align
    per_block = block_bytes // (t.sizeof + 4)
    while head_bytes(per_block) + per_block * t.sizeof > block_bytes:
        per_block -= 1
    count = int(load(slab["size_"]))
    for b in range((count + per_block - 1) // per_block):
        leaf = load(slab["top_"][b // 512]).dereference()
        first = int(load(leaf["blocks"][b % 512])) + head_bytes(per_block)
        for i in range(min(per_block, count - b * per_block)):
            yield gdb.Value(first + i * t.sizeof).cast(t.pointer()).dereference()



# -- frames

class Override(Unwinder):
    """For the innermost frame of the selected thread only, and only while it is asked."""

    def __init__(self):
        super().__init__("weft goroutines")
        self.frame = 0              # a switch_frame

    def __call__(self, pending):
        if self.frame == 0:
            return None
        registers, size, sp, pc = LAYOUT[gdb.selected_inferior().architecture().name()]
        word = gdb.lookup_type("unsigned long")
        here = pending.read_register(sp).cast(word)
        if here != self.real_sp:
            return None             # one of the goroutine's own frames
        # Its id lies where the switch_frame does: an outer frame must not lie below an inner one.
        info = pending.create_unwind_info(FrameId(gdb.Value(self.frame).cast(word), pending.read_register(pc)))
        for register, offset in registers:
            at = gdb.Value(self.frame + offset).cast(word.pointer())
            info.add_saved_register(register, at.dereference())
        info.add_saved_register(sp, gdb.Value(self.frame + size).cast(word))
        return info

    def frames(self, switch_frame):
        _, _, sp, _ = LAYOUT[gdb.selected_inferior().architecture().name()]
        gdb.invalidate_cached_frames()
        self.real_sp = gdb.newest_frame().read_register(sp).cast(gdb.lookup_type("unsigned long"))
        gdb.invalidate_cached_frames()
        self.frame = switch_frame
        try:
            return [describe_frame(f) for f in chain(gdb.newest_frame().older())]
        finally:
            self.frame = 0
            gdb.invalidate_cached_frames()


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


def chain(frame):
    n = 0
    while frame is not None and n < 200:
        yield frame
        try:
            frame = frame.older()
        except gdb.error:
            return
        n += 1


def describe_frame(frame):
    """(function, file:line, pc): what is left of a frame when the unwinder has let it go."""
    sal = frame.find_sal()
    line = f"{sal.symtab.filename}:{sal.line}" if sal.symtab else ""
    return frame.name() or "??", line, frame.pc()


def is_users(frame):
    return not frame[0].startswith(("weft::", "weft_", "std::", "__"))


def describe(frame):
    return f"{frame[0]} at {frame[1]}" if frame[1] else frame[0]


def thread_frames(tid):
    before = gdb.selected_thread()
    try:
        for t in gdb.selected_inferior().threads():
            if t.ptid[1] == tid:
                t.switch()
                return [describe_frame(f) for f in chain(gdb.newest_frame())]
    finally:
        if before is not None:
            before.switch()
    return []


def print_goroutine(g):
    name = f' "{g.name}"' if g.name else ""
    thread = f", thread {g.thread}" if g.thread else ""
    print(f"goroutine {g.id}{name} [{g.state()}{thread}]:")
    frames = g.frames()
    if not frames:
        print("    not begun yet")
    for n, (function, line, pc) in enumerate(frames):
        print(f"#{n:<3} {pc:#018x} in {function} ()" + (f" at {line}" if line else ""))


# -- commands

class InCpp:
    """Names are C++'s, whatever language the selected frame is written in."""

    def __enter__(self):
        gdb.execute("set language c++", to_string=True)

    def __exit__(self, *_):
        gdb.execute("set language auto", to_string=True)


class InfoGoroutines(gdb.Command):
    """Lists every goroutine: number, name, state, where it stands."""

    def __init__(self):
        super().__init__("info goroutines", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        with InCpp():
            for g in goroutines():
                mark = "*" if g.status in (RUNNING, SYSCALL) else " "
                name = f' "{g.name}"' if g.name else ""
                print(f"{mark} {g.id:<5} {g.state():<24}{name} {g.where()}")


class GoroutineCommand(gdb.Command):
    """goroutine N bt, goroutine all bt: the stack of one goroutine, or of all."""

    def __init__(self):
        super().__init__("goroutine", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        words = argument.split()
        if len(words) != 2 or words[1] not in ("bt", "backtrace"):
            raise gdb.GdbError("usage: goroutine N bt | goroutine all bt")
        with InCpp():
            self.show(words[0])

    def show(self, which):
        wanted = [g for g in goroutines() if which == "all" or str(g.id) == which]
        if not wanted:
            raise gdb.GdbError(f"no goroutine {which}")
        for n, g in enumerate(wanted):
            if n:
                print()
            print_goroutine(g)


OVERRIDE = Override()
gdb.unwinder.register_unwinder(None, OVERRIDE, replace=True)
InfoGoroutines()
GoroutineCommand()
