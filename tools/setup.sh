#!/usr/bin/env bash
# Installs what a build of weft needs on Debian 12, and only what is missing. Asks nothing;
# works as root or through sudo; returns at once when everything is there.
#
#   tools/setup.sh [base|ci|bench]...      without arguments: base
set -euo pipefail

# An entry is package or package=command; with a command, any such command in PATH will do.
base=(g++=g++ cmake=cmake ninja-build=ninja make=make pkg-config=pkg-config python3=python3
      binutils=objdump ccache=ccache libgtest-dev googletest libboost-dev libssl-dev)
ci=(clang-14=clang++-14 clang-tidy-14=clang-tidy-14 clang-format-14=clang-format-14
    libclang-rt-14-dev g++-aarch64-linux-gnu=aarch64-linux-gnu-g++ qemu-user=qemu-aarch64
    gdb=gdb valgrind=valgrind util-linux=setarch spin=spin)

# The peers that Debian has. The others come from releases of their own and are only looked for.
bench=(libboost-fiber-dev libboost-context-dev erlang-base=erl binutils=strip)

installed() { [[ $(dpkg-query -W -f='${Status}' "$1" 2>/dev/null) == "install ok installed" ]]; }

missing=()
need() {
  local entry
  for entry in "$@"; do
    if [[ $entry == *=* ]]; then
      command -v "${entry#*=}" >/dev/null || missing+=("${entry%%=*}")
    else
      installed "$entry" || missing+=("$entry")
    fi
  done
}

for group in "${@:-base}"; do
  case $group in
    base) need "${base[@]}" ;;
    ci) need "${ci[@]}" ;;
    bench)
      need "${bench[@]}"
      # Each on a fresh machine is a column less, never an error.
      absent() { echo "setup: no $1 found: its column of the benchmarks is skipped"; }
      PATH=$PATH:/usr/local/go/bin command -v go >/dev/null || absent Go
      PATH=$PATH:$HOME/.cargo/bin command -v cargo >/dev/null || absent "Rust (1.85 or later)"
      java_version=$("${JAVA_HOME:+$JAVA_HOME/bin/}javac" -version 2>/dev/null | sed -nE 's/^javac ([0-9]+).*/\1/p' || true)
      ((${java_version:-0} >= 21)) || absent "JDK 21 or later"
      ;;
    *) echo "setup: unknown group '$group' (base, ci, bench)" >&2; exit 2 ;;
  esac
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || {
    echo "setup: missing ${missing[*]}; run as root or install sudo" >&2; exit 1; }
  as_root=(sudo)
fi
command -v apt-get >/dev/null || {
  echo "setup: missing ${missing[*]}, and there is no apt-get to install them with" >&2; exit 1; }

echo "setup: installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
"${apt[@]}" update >/dev/null
"${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null
