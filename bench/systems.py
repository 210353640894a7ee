# SPDX-License-Identifier: Apache-2.0
"""The systems that are compared: finding, building and running them. The protocol is in README.md."""
import json
import os
import pathlib
import platform
import re
import resource
import select
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
os.environ["PATH"] += f":/usr/local/go/bin:{pathlib.Path.home()}/.cargo/bin"     # where Go and Rust install themselves
START_TIMEOUT = 20
RESULT = re.compile(r"^RESULT (\S+) (\S+) (\S+)$", re.M)
FROM_OUTSIDE = {"startup": "hello", "binary_size": "binary"}     # workload -> what system.json must have


class Failure(Exception):
    pass


class System:
    """One folder with a system.json: how to build it, which programs come out, and what they can run."""

    timeout = 180       # seconds, of a run

    def __init__(self, folder, out):
        self.name, self.folder, self.build, self.out = folder.name, folder, out / folder.name, out
        self.spec = json.loads((folder / "system.json").read_text())
        self.programs = {}      # workload -> program

    def command(self, words):
        return [w.replace("{build}", str(self.build)) for w in words]

    def missing(self):
        """Why this system cannot run here, or None."""
        for tool in self.spec["requires"]:
            if not shutil.which(tool):
                return f"{tool} is not installed"
        if "check" in self.spec:
            done = subprocess.run(self.command(self.spec["check"]), cwd=self.folder, capture_output=True, text=True)
            if done.returncode:
                return (done.stdout + done.stderr).strip() or "its check failed"
        return None

    def prepare(self):
        reason = self.missing()
        if reason:
            raise Failure(reason)
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

    def can(self, run):
        if run.procs and not self.spec.get("procs_env"):
            return False
        if run.workload in FROM_OUTSIDE:
            return FROM_OUTSIDE[run.workload] in self.spec
        return run.workload in self.programs

    def environment(self, procs):
        """A bare one, so that nobody's GOGC or WEFT_DEBUG plays a part."""
        env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "JAVA_HOME")}
        if procs:
            env[self.spec["procs_env"]] = str(procs)
        return env

    def execute(self, words, procs):
        try:
            done = subprocess.run([str(w) for w in words], env=self.environment(procs), capture_output=True, text=True, timeout=self.timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"no end after {self.timeout} s") from None
        if done.returncode:
            raise Failure(f"exit status {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def measure(self, run):
        """What one run gives: metric -> (value, unit)."""
        n = run.n
        for pattern, factor in self.spec.get("scale", {}).items():
            if re.fullmatch(pattern, run.workload):
                n = max(1, int(n * factor))
        if run.workload == "binary_size":
            return {"binary_size": (self.stripped_size() / 1024, "KiB")}
        if run.workload == "startup":
            text = self.execute([self.out / "load", "startup", n] + self.command(self.spec["hello"]), run.procs)
        elif run.load:
            text = self.serve(run.workload, run.load, n, run.procs)
        else:
            text = self.execute([self.programs[run.workload], run.workload, n], run.procs)
        return {metric: (float(value), unit) for metric, value, unit in RESULT.findall(text)}

    def stripped_size(self):
        copy = self.build / "hello.stripped"
        subprocess.run(["strip", "-o", str(copy), *self.command([self.spec["binary"]])], check=True)
        return copy.stat().st_size

    def serve(self, workload, load, n, procs):
        """Starts the server, sends it requests from bench/load, and ends it."""
        kind, conns = load
        with tempfile.TemporaryFile("w+") as words:
            server = subprocess.Popen([str(self.programs[workload]), workload, "1"], env=self.environment(procs), text=True,
                                      stdout=subprocess.PIPE, stderr=words, stdin=subprocess.DEVNULL)
            try:
                ready, _, _ = select.select([server.stdout], [], [], START_TIMEOUT)
                line = server.stdout.readline() if ready else ""
                if not line.startswith("PORT "):
                    words.seek(0)
                    raise Failure(f"the server gave no port: {line}{words.read()[-300:]}")
                return self.execute([self.out / "load", kind, line.split()[1], conns, n], None)
            finally:
                server.kill()
                server.communicate()


def build_load(out):
    """The load generator, which is no system's."""
    out.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["c++", "-std=c++20", "-O2", "-pthread", str(HERE / "load" / "load.cc"), "-o", str(out / "load")],
                          capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"building bench/load failed:\n{done.stderr[-1000:]}")


def prepare_systems(wanted, out, progress):
    """The systems that can run, and a word on each that cannot. Only weft must be there if it was asked for."""
    folders = [HERE / "weft", HERE / "peers" / "go"] + sorted(p.parent for p in HERE.glob("peers/*/system.json") if p.parent.name != "go")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))      # 10 000 connections
    build_load(out)
    systems, skipped = [], {}
    for folder in folders:
        if wanted and folder.name not in wanted:
            continue
        system = System(folder, out)
        progress(f"building {system.name}")
        try:
            system.prepare()
            systems.append(system)
        except Failure as e:
            if system.name == "weft":
                raise
            skipped[system.name] = str(e)
    return systems, skipped


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
