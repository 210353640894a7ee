#!/usr/bin/env bash
# Installs a finished build into a temporary prefix, moves it, and builds and runs the program beside this
# script against it: with find_package (static and shared) and with pkg-config.
#
#   run.sh <build dir>      environment: CXX, CMAKE, TOOLCHAIN, EMULATOR (the last two for cross builds)
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read -ra emulator <<<"${EMULATOR:-}"

expect_hello() {
  local said
  said=$("${emulator[@]}" "$@") || { echo "$*: exit status $?" >&2; exit 1; }
  [[ $said == hello ]] || { echo "$*: said '$said', not 'hello'" >&2; exit 1; }
  echo "ok: $(basename "$1")"
}

"$CMAKE" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"    # an installed tree must not know where it was made
prefix=$work/prefix
if [[ -e $prefix/bin/weft ]]; then "${emulator[@]}" "$prefix/bin/weft" --version; fi

"$CMAKE" -S "$here" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$CXX" \
  ${TOOLCHAIN:+-DCMAKE_TOOLCHAIN_FILE="$TOOLCHAIN"} >/dev/null
"$CMAKE" --build "$work/cmake"
expect_hello "$work/cmake/hello_static"
[[ ! -e $work/cmake/hello_shared ]] || expect_hello "$work/cmake/hello_shared"

pc=$(find "$prefix" -name weft.pc)
export PKG_CONFIG_PATH=${pc%/*}
libdir=$(pkg-config --variable=libdir weft)
# shellcheck disable=SC2046  # the flags are words
"$CXX" -std=c++20 "$here/main.cpp" -o "$work/hello_pkgconfig" $(pkg-config --cflags --libs weft) \
  -Wl,-rpath,"$libdir"
expect_hello "$work/hello_pkgconfig"
