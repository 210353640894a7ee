# SPDX-License-Identifier: Apache-2.0
"""What instructions do to registers and stack slots, as far as check_tls.py must know.

A location is a register ("rbx", "x19") or a stack slot (its distance from the stack pointer at function
entry, an int). A location's taint is None (no thread's address), FRESH, or the name of the call it survived.
step(state, op, args, read) applies one instruction; it calls read(location) for every value it reads.
Unknown instructions move taint from their sources to their destination, which is the safe side.
"""
import re

FRESH = ""


class State:
    """Taint of each location, and where the stack and frame pointers stand relative to function entry."""

    def __init__(self, taint=(), sp=0, fp=None):
        self.taint, self.sp, self.fp = dict(taint), sp, fp

    def copy(self):
        return State(self.taint, self.sp, self.fp)

    def set(self, loc, taint):
        if taint is None:
            self.taint.pop(loc, None)
        elif loc is not None:
            self.taint[loc] = taint

    def join(self, other):
        """Takes in what `other` knows; true if that was news. Stale beats fresh."""
        news = False
        for loc, taint in other.taint.items():
            if loc not in self.taint or (taint and not self.taint[loc]):
                self.taint[loc], news = taint, True
        return news


def worst(taints):
    taints = [t for t in taints if t is not None]
    return next((t for t in taints if t), FRESH if taints else None)


def split(text):
    """Operands, at the commas outside of brackets."""
    return [a.strip() for a in re.split(r",(?![^(\[]*[)\]])", text)] if text else []


class X86:
    result = "rax"
    pc_bias = 4                                   # a relocation counts from the end of its four bytes
    saved = {"rbx", "rbp", "r12", "r13", "r14", "r15"}
    call, jump, ends = re.compile(r"call"), re.compile(r"j"), re.compile(r"jmp|ret|ud2|hlt")
    reads_only = re.compile(r"cmp[bwlq]?$|v?u?comis|test|bt[wlq]?$|prefetch|nop|endbr|ptest|ldmxcsr|fldcw|call|j")
    overwrites = re.compile(r"v?mov|lea|set|v?cvt|bs[fr]|[tl]zcnt|popcnt|pshuf")
    clobbers = {"mul": "rax rdx", "imul": "rax rdx", "div": "rax rdx", "idiv": "rax rdx", "cqto": "rdx",
                "cltd": "rdx", "rdtsc": "rax rdx", "cpuid": "rax rbx rcx rdx", "syscall": "rax rcx r11"}
    names = {f"{p}{n}{s}": f"r{n}x" for n in "abcd" for p, s in (("r", "x"), ("e", "x"), ("", "x"), ("", "l"))}
    names |= {f"{p}{n}": f"r{n}" for n in ("si", "di", "bp", "sp") for p in ("r", "e", "")}
    names |= {f"r{n}{s}": f"r{n}" for n in range(8, 16) for s in ("", "d", "w", "b")}
    memory = re.compile(r"\*?(?:%(\w+):)?(-?0x[0-9a-f]+)?(?:\((%\w+)?(?:,(%\w+),\d)?\))?$")

    def indirect(self, arg):
        return arg.startswith("*")

    def reg(self, arg):
        arg = arg.lstrip("*")
        return self.names.get(arg[1:], arg[1:]) if arg.startswith("%") and ":" not in arg else None

    def mem(self, arg):
        """(segment, displacement, base, index) of a memory operand, else None."""
        if self.reg(arg) or not (m := self.memory.match(arg)):
            return None
        return m[1], int(m[2] or "0", 0), m[3] and self.reg(m[3]), m[4] and self.reg(m[4])

    def slot(self, st, mem):
        if mem and mem[0] is None and mem[3] is None:
            start = {"rsp": st.sp, "rbp": st.fp}.get(mem[2])
            return None if start is None else start + mem[1]
        return None

    def step(self, st, op, args, read):
        mems = {a: m for a in args if (m := self.mem(a))}
        bases = []                                # what the addresses that it uses are made of
        for mem in mems.values():
            if self.slot(st, mem) is None:
                bases += [read(r) for r in mem[2:] if r and r != "rsp"]

        def value(arg):
            if reg := self.reg(arg):
                return read(reg)
            mem = mems.get(arg)
            if mem == ("fs", 0, None, None):
                return FRESH
            slot = self.slot(st, mem)
            return None if slot is None else read(slot)

        dst = args[-1] if args else None
        if op.startswith("push"):
            st.sp -= 8
            st.set(st.sp, value(dst))
        elif op.startswith("pop") and op != "popcnt":
            st.set(self.reg(dst), st.taint.get(st.sp))
            st.fp = None if dst == "%rbp" else st.fp
            st.sp += 8
        elif op.startswith("leave"):
            st.sp, st.fp = (st.sp if st.fp is None else st.fp) + 8, None
        elif dst == "%rsp" and len(args) == 2:
            imm = re.match(r"\$(-?0x[0-9a-f]+)$", args[0])
            if imm and op[:3] in ("sub", "add"):
                st.sp += int(imm[1], 0) * (-1 if op[:3] == "sub" else 1)
            elif op.startswith("lea") and (slot := self.slot(st, mems.get(args[0]))) is not None:
                st.sp = slot
        elif args == ["%rsp", "%rbp"] and op.startswith("mov"):
            st.fp = st.sp
        elif op.startswith("rdfsbase"):
            st.set(self.reg(dst), FRESH)
        elif len(args) < 2 and (lost := self.clobbers.get(op) or self.clobbers.get(op[:-1])):
            for reg in lost.split():
                st.set(reg, None)
        elif len(args) < 2 or self.reads_only.match(op):
            for arg in args:
                value(arg)
        elif op.startswith(("xor", "pxor", "sub")) and args[0] == dst:
            st.set(self.reg(dst), None)
        else:
            got = bases if op.startswith("lea") else [value(a) for a in args[:-1]]
            if not self.overwrites.match(op) and len(args) < 3:
                got.append(value(dst))
            into = self.reg(dst) or self.slot(st, mems.get(dst))
            st.set(into, worst(got))
            st.fp = None if into == "rbp" else st.fp
            if op.startswith(("xchg", "xadd", "cmpxchg")):        # what comes back from memory is data
                st.set("rax" if op[0] == "c" else self.reg(args[0]), None)


class A64:
    result = "x0"
    pc_bias = 0
    saved = {f"x{n}" for n in range(19, 30)}
    call, ends = re.compile(r"blr?$"), re.compile(r"(b|br|ret|brk|udf)$")
    jump = re.compile(r"(b|b\..*|br|cbn?z|tbn?z)$")
    reads_only = re.compile(r"f?cmpe?$|cmn|tst|f?ccm|cbn?z|tbn?z|br?$|b\.|blr?$|msr|prfm|hint|nop|[di][ms]b|brk|ret")
    memory = re.compile(r"\[(\w+)(?:, ([wx]\w+))?(?:, #(-?\w+))?.*\](!?)$")

    def indirect(self, arg):
        return re.match(r"x\d+$", arg) is not None

    def reg(self, arg):
        m = re.match(r"([wxbhsdqv])(\d+)", arg)
        return ("x" if m[1] in "wx" else "v") + m[2] if m else "sp" if arg == "sp" else None

    def access(self, st, op, args, where, m):
        """A load or store: args[where] is the bracketed operand, m its match."""
        base, index, disp = self.reg(m[1]), m[2] and self.reg(m[2]), int(m[3] or "0", 0)
        start = {"sp": st.sp, "x29": st.fp}.get(base)
        post = int(args[where + 1][1:], 0) if args[where + 1:] and args[where + 1].startswith("#") else 0
        if base == "sp":
            st.sp += post + (disp if m[4] else 0)
        slot = start + disp if start is not None and index is None else None
        return slot, [] if slot is not None else [r for r in (base, index) if r]

    def step(self, st, op, args, read):
        regs = [self.reg(a) for a in args]
        where, m = next(((k, m) for k, a in enumerate(args) if (m := self.memory.match(a))), (0, None))
        if m:
            slot, bases = self.access(st, op, args, where, m)
            for reg in bases:
                read(reg)
            size = {"w": 4, "s": 4, "q": 16}.get(args[0][0], 8)
            for k, reg in enumerate(regs[:where]):
                at = None if slot is None else slot + k * size
                if op.startswith("st"):
                    taint = read(reg)
                    if at is not None:
                        st.set(at, taint)
                else:                             # ld; also swp and cas: what comes back from memory is data
                    st.set(reg, None if at is None else read(at))
                    st.fp = None if reg == "x29" else st.fp
        elif op == "mrs":
            st.set(regs[0], FRESH if args[1] == "tpidr_el0" else None)
        elif op == "svc":
            st.set("x0", None)
        elif not args or self.reads_only.match(op):
            for reg in filter(None, regs):
                read(reg)
        elif regs[0] == "sp" or (regs[0] == "x29" and regs[1:2] == ["sp"]):
            imm = int(args[2][1:], 0) << (12 if len(args) > 3 else 0) if len(args) > 2 and args[2][0] == "#" else 0
            start = {"sp": st.sp, "x29": st.fp}.get(regs[1])
            if start is not None:
                at = start - imm if op == "sub" else start + imm
                st.sp, st.fp = (at, st.fp) if regs[0] == "sp" else (st.sp, at)
        else:
            first = 0 if op.startswith(("movk", "bf")) else 1
            st.set(regs[0], worst([read(r) for r in regs[first:] if r]))
            st.fp = None if regs[0] == "x29" else st.fp
