#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command as sanitized programs need it:   tools/with_sanitizer_env.sh ctest --preset tsan
# Options that are set already come last and so win.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

# detect_stack_use_after_return moves locals to a fake stack that knows nothing of goroutines.
export ASAN_OPTIONS="detect_stack_use_after_return=0:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
# TSan lets a process with threads wait a second before it ends, for races at the very end: with a process a
# test that is most of the run. 20 ms are enough for a thread that is awake.
tsan=suppressions=$root/tests/tsan.supp:halt_on_error=1:second_deadlock_stack=1:atexit_sleep_ms=20
export TSAN_OPTIONS="$tsan:${TSAN_OPTIONS:-}"

# ThreadSanitizer knows where mappings lie with up to 28 random bits; kernels may be set to more.
fixed=()
bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 32)
if ((bits > 28)) && setarch -R true 2>/dev/null; then fixed=(setarch -R); fi
exec "${fixed[@]}" "$@"
