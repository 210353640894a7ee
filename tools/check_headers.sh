#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every header under include/ and src/ must compile alone, with g++ and, where it is installed, clang++-14.
# <weft/asio.hpp> is optional and left out where there is no Boost.
#
#   tools/check_headers.sh [header]...      without arguments: all of them
set -euo pipefail
cd "$(dirname "$0")/.."

compilers=(g++)
if command -v clang++-14 >/dev/null; then compilers+=(clang++-14); fi
if (($#)); then headers=("$@"); else
  mapfile -t headers < <(find include src -name '*.h' -o -name '*.hpp' | sort)
  if ! g++ -E -x c++ - <<<'#include <boost/version.hpp>' >/dev/null 2>&1; then
    echo "check_headers: no Boost: include/weft/asio.hpp is left out"
    mapfile -t headers < <(printf '%s\n' "${headers[@]}" | grep -v '/asio\.hpp$')
  fi
fi

# Read from standard input, as a header given by name warns about its own #pragma once.
# Without -g and code generation a header takes a fraction of a second.
one() {
  "$1" -std=c++20 -Iinclude -Isrc -fsyntax-only -x c++ - <<<"#include \"$PWD/$2\"" ||
    { echo "check_headers: $2 does not compile alone with $1" >&2; return 1; }
}
export -f one

for compiler in "${compilers[@]}"; do
  for header in "${headers[@]}"; do printf '%s\0%s\0' "$compiler" "$header"; done
done | xargs -0 -r -n 2 -P "${JOBS:-2}" bash -c 'one "$1" "$2"' one ||
  { echo "check_headers: failed"; exit 1; }
echo "check_headers: ${#headers[@]} headers compile alone with ${compilers[*]}"
