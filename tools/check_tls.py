#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves on the disassembly of our objects that no thread's address lives across a switch.

A goroutine that calls weft_switch may come back on another thread. The compiler does not know: it may
compute the address of a thread_local (or of errno) before the call and use it after. This check finds that.

1. Call graph over all objects from direct calls and tail jumps: whoever reaches SWITCHES may switch.
2. Per function a forward data flow over the control-flow graph. A location (register or stack slot) is FRESH
   when it holds a thread's address, and goes stale when it survives a call that may switch. Reading a stale
   location is the error. What each instruction does to locations is in tls_machine.py.

Where such addresses come from: the thread base (%fs:0, tpidr_el0), ADDRESS_CALLS, and functions of ours that
are seen to return one. %fs:(%rax) is fine: offsets from the base are the same in every thread.

Landing pads are reached from the calls that tls_unwind.py names. Coarse on purpose: memory outside the own
frame is not followed; blocks that nothing else leads to are reached from every indirect jump of their function.

    check_tls.py <build dir or object>...        check_tls.py --self-test
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

from tls_machine import A64, FRESH, X86, State, split
from tls_unwind import landing_pads

SWITCHES = {"weft_switch", "weft_start"}
# Functions (demangled, regular expressions) whose indirect calls may switch. All of them: a goroutine's body,
# a callback and a virtual call look the same in the disassembly.
INDIRECT = [r".*"]
# Functions (likewise) that do not come back, neither by return nor by exception: what they call is of no matter.
DEAD_ENDS = [r"weft::rt::end_fatal\(.*", r"weft::rt::sleep_for_good\(.*"]
# Functions that answer with an address of the calling thread; _ZTW is the wrapper of an extern thread_local.
ADDRESS_CALLS = re.compile(r"__tls_get_addr|__errno_location|__cxa_get_globals(_fast)?|pthread_self|_ZTW.*")
NORETURN = re.compile(r"abort|_?exit|__cxa_(throw|rethrow|bad_\w+|throw_bad\w+)|_Unwind_Resume|__assert_fail"
                      r"|__stack_chk_fail|pthread_exit|_ZSt9terminatev|_ZSt17rethrow_exception.*|_ZSt\d+__throw_.*")

PREFIXES = re.compile(r"((lock|rep[nz]*|notrack|bnd|data16|rex\.W|addr32|[cdes]s) +)+")
SECTION = re.compile(r"Disassembly of section (.*):$")
INSN = re.compile(r"\s+([0-9a-f]+):\t(.*)$")
RELOC = re.compile(r"\s+[0-9a-f]+: (R_\S+)\s+(.+?)([+-]0x[0-9a-f]+)?$")
SYMBOL = re.compile(r"([0-9a-f]{16}) .{6}F (\S+)\t[0-9a-f]{16} (?:\.\w+ )?(\S+)$")


class Insn:
    def __init__(self, section, address, text):
        self.section, self.address = section, address
        self.text = re.sub(r"\s*(#|//) .*$", "", text).strip()
        op, _, rest = PREFIXES.sub("", self.text + " ").strip().replace("\t", " ").partition(" ")
        self.op, self.args = op, split(rest.strip())
        self.relocs = []
        self.target = None      # of a call or jump: a name, an index into the own function, or INDIRECT_TARGET
        self.pad = None         # index of the block where an exception out of this call lands


INDIRECT_TARGET = object()


def demangle(text):
    return subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout


class Function:
    """One function together with its .cold part."""

    def __init__(self, obj, machine, name):
        self.obj, self.machine, self.name = obj, machine, name
        self.insns, self.index = [], {}

    def flow(self):
        """Successors of each instruction, and the blocks that nothing leads to."""
        insns, led, starts = self.insns, {0}, []
        succ = [[] for _ in insns]
        for k, insn in enumerate(insns):
            if isinstance(insn.target, int):
                succ[k].append(insn.target)
            led.update(n for n in (insn.target, insn.pad) if isinstance(n, int))
            if k + 1 == len(insns):
                continue
            if self.machine.ends.match(insn.op) or insns[k + 1].section != insn.section:
                starts.append(k + 1)
            else:
                succ[k].append(k + 1)
        orphans = set()
        for k in starts:
            while k < len(insns) and k not in led and re.match(r"nop|xchg$", insns[k].op):
                k += 1          # padding in front of an aligned block
            if k < len(insns) and k not in led:
                orphans.add(k)
        return succ, orphans


class Program:
    def __init__(self, objects):
        self.functions, self.defined = [], {}
        for obj in objects:
            self.load(Path(obj))
        plain = demangle("\n".join(f.name for f in self.functions))
        for f, pretty in zip(self.functions, plain.splitlines()):
            f.pretty = pretty
            f.indirect = any(re.fullmatch(p, pretty) for p in INDIRECT)
            f.dead_end = any(re.fullmatch(p, pretty) for p in DEAD_ENDS)
            f.succ, f.orphans = f.flow()
        self.switching, self.returning, self.answering = set(), set(), set()
        while self.close():
            pass

    def load(self, obj):
        """Reads symbols and instructions of one object and resolves its calls and jumps."""
        with open(obj, "rb") as file:
            cpu = {62: "x86_64", 183: "aarch64"}[int.from_bytes(file.read(20)[18:], "little")]
        objdump = shutil.which(f"{cpu}-linux-gnu-objdump") or "objdump"
        machine = X86() if cpu == "x86_64" else A64()

        def lines(*options):
            return subprocess.run([objdump, *options, obj], capture_output=True, text=True, check=True).stdout.splitlines()

        places = {}             # (section, address) -> names of a function, hot parts before cold ones
        for line in lines("-t", "-w"):
            if m := SYMBOL.match(line):
                places.setdefault((m[2], int(m[1], 16)), []).append(m[3])
        local, owner = {}, {}
        for place, names in sorted(places.items(), key=lambda p: ".cold" in p[1][0]):
            f = local.get(names[0].partition(".cold")[0])
            if f is None:
                f = Function(obj, machine, names[0])
                self.functions.append(f)
            owner[place] = f
            for name in names:
                local[name] = f
                self.defined.setdefault(name, []).append(f)

        section, f = None, None
        for line in lines("-dr", "--no-show-raw-insn"):
            if m := SECTION.match(line):
                section, f = m[1], None
            elif m := RELOC.match(line):
                if f:
                    f.insns[-1].relocs.append((m[1], m[2], int(m[3] or "0", 0)))
            elif m := INSN.match(line):
                place = (section, int(m[1], 16))
                f = owner.get(place, f)
                if f:
                    f.index[place] = len(f.insns)
                    f.insns.append(Insn(*place, m[2]))
        for f in dict.fromkeys(owner.values()):
            f.local = local
            for insn in f.insns:
                insn.target = self.resolve(f, insn, owner)
        for (section, start), sites in landing_pads(lines).items():
            f = owner[section, start]
            for begin, end, pad in sites:
                for insn in f.insns:
                    if insn.section == section and start + begin <= insn.address < start + end:
                        insn.pad = f.index[section, start + pad]

    def resolve(self, f, insn, owner):
        call = f.machine.call.match(insn.op)
        if not insn.args or not (call or f.machine.jump.match(insn.op)):
            return None
        place = None
        if insn.relocs:
            kind, name, addend = insn.relocs[-1]
            if "TLSDESC" in kind:
                return "__tls_get_addr"
            place = (name, addend + f.machine.pc_bias)
            if not name.startswith("."):
                return name     # x86 with a GOT entry, too: the reloc tells whom `call *0(%rip)` means
        elif f.machine.indirect(insn.args[-1]):
            return INDIRECT_TARGET
        else:
            place = (insn.section, int(insn.args[-1].split()[0], 16))
        if place in f.index and not (call and place in owner):
            return f.index[place]
        return owner[place].name if place in owner else INDIRECT_TARGET

    def callees(self, f, name):
        return [f.local[name]] if name in f.local else self.defined.get(name, [])

    def switches(self, f, insn):
        if insn.target is INDIRECT_TARGET:
            return f.indirect and bool(f.machine.call.match(insn.op))
        return isinstance(insn.target, str) and (insn.target in SWITCHES or any(
            c in self.switching for c in self.callees(f, insn.target)))

    def returns(self, f, target):
        if not isinstance(target, str):
            return True
        callees = self.callees(f, target)
        return any(c in self.returning for c in callees) if callees else not NORETURN.fullmatch(target)

    def answers(self, f, target):
        return isinstance(target, str) and (ADDRESS_CALLS.fullmatch(target) is not None or any(
            c in self.answering for c in self.callees(f, target)))

    def close(self):
        """One round of the fixpoint: who may switch, who may return."""
        before = len(self.switching) + len(self.returning)
        for f in self.functions:
            for insn in f.insns:
                if self.switches(f, insn) and not f.dead_end:
                    self.switching.add(f)
                leaves = insn.op.startswith("ret") or (insn.target is not None and not isinstance(insn.target, int)
                                                       and not f.machine.call.match(insn.op))
                if leaves and (insn.target is None or self.returns(f, insn.target)):
                    self.returning.add(f)
        return len(self.switching) + len(self.returning) > before

    def check(self):
        """All errors. Repeated until no further function is seen to return a thread's address."""
        while True:
            before, errors = len(self.answering), []
            for f in self.functions:
                if f.insns and f.name not in SWITCHES:
                    errors += self.follow(f)
            if len(self.answering) == before:
                return errors

    def follow(self, f):
        """The data flow over one function."""
        machine, errors = f.machine, {}
        states, work = {0: State()}, [0]
        while work:
            k = work.pop()
            insn, st = f.insns[k], states[k].copy()

            def read(loc):
                if st.taint.get(loc):
                    where = f"stack slot {loc:+d}" if isinstance(loc, int) else loc
                    errors[k] = f"{f.obj}: {f.pretty}\n    at {insn.section}+{insn.address:#x}: `{insn.text}` reads a thread's " \
                                f"address from {where}, taken before the call of {st.taint[loc]}, which may switch"
                return st.taint.get(loc)

            machine.step(st, insn.op, insn.args, read)
            leads = f.succ[k]
            if machine.call.match(insn.op):
                name = insn.target if isinstance(insn.target, str) else "a function pointer"
                switch = self.switches(f, insn)
                st.taint = {loc: name if switch else taint for loc, taint in st.taint.items()
                            if isinstance(loc, int) or loc in machine.saved}
                pads = [] if insn.pad is None else [(insn.pad, st.copy())]
                if self.answers(f, insn.target):
                    st.taint[machine.result] = FRESH
                if not self.returns(f, insn.target):
                    leads = []
                leads = [(n, st) for n in leads] + pads
            else:
                gone = insn.op.startswith("ret") and machine.result in st.taint
                if gone or (not leads and self.answers(f, insn.target)):
                    self.answering.add(f)
                leads = leads + (list(f.orphans) if insn.target is INDIRECT_TARGET else [])
                leads = [(n, st) for n in leads]
            for n, new in leads:
                if n not in states:
                    states[n] = new.copy()
                    work.append(n)
                elif states[n].join(new):
                    work.append(n)
        return list(errors.values())


def self_test():
    """tls_offender.cc, by every compiler at hand: each offender_* must be found and no clean_*."""
    source = Path(__file__).with_name("tls_offender.cc")
    planted = set(re.findall(r"\b((?:offender|clean)_\w+)\(", source.read_text()))
    compilers = [c for c in ("g++", "clang++-14", "aarch64-linux-gnu-g++") if shutil.which(c)]
    models = ["-ftls-model=initial-exec", "-ftls-model=global-dynamic"]
    failed = False
    for compiler in compilers:
        for flags in ([o, m] for o in ("-O1", "-O2") for m in models):
            with tempfile.TemporaryDirectory() as folder:
                obj = Path(folder) / "tls_offender.o"
                subprocess.run([compiler, "-std=c++20", "-fPIC", "-fno-omit-frame-pointer", *flags, "-c", source, "-o", obj], check=True)
                text = "\n".join(Program([obj]).check())
            found = {name for name in planted if re.search(rf"\b{name}\b", text)}
            wrong = found ^ {name for name in planted if name.startswith("offender_")}
            failed |= bool(wrong)
            print(f"check_tls self-test: {compiler} {' '.join(flags)}: {'WRONG ' + ' '.join(sorted(wrong)) if wrong else 'ok'}")
            if wrong:
                print(text)
    sys.exit(failed)


def objects_of(build):
    """The library's objects, from compile_commands.json: those of deleted sources may still lie about."""
    commands = json.loads((build / "compile_commands.json").read_text())
    outputs = ((c["directory"], re.search(r" -o (\S+)", c["command"])[1]) for c in commands)
    return sorted(Path(folder) / out for folder, out in outputs if "weft_objects.dir" in out)


def main(args):
    if args == ["--self-test"]:
        self_test()
    objects = []
    for arg in map(Path, args):
        objects += objects_of(arg) if arg.is_dir() else [arg]
    if not objects:
        sys.exit("check_tls: no objects; give a build directory or objects")
    program = Program(objects)
    errors = program.check()
    print(demangle("\n".join(errors + [""])), end="")
    print(f"check_tls: {len(objects)} objects, {len(program.functions)} functions, {len(program.switching)} may switch, "
          f"{len(errors)} errors")
    if not program.switching:
        sys.exit(f"check_tls: nothing calls {' or '.join(SWITCHES)}: these are not the objects of the runtime")
    sys.exit(bool(errors))


if __name__ == "__main__":
    main(sys.argv[1:])
