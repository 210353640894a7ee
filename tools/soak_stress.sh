#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The stress suite at length: every test that matches, at each number of Ps (1, 2, 3, 16), in a process of its own,
# so that one's memory is not another's (`make soak` is all of it in one). Goes on after a failure; status 0 only if there
# was none.
#
#   tools/soak_stress.sh <weft_stress> [filter]      the filter is GoogleTest's; without it, all
#
#   SOAK        seconds a test goes on (600); the scheduler is audited at random moments meanwhile
#   HANDOFFS    hand-offs between otherwise idle Ms that Wakeup.FromOnePToAnother makes at least (100'000'000:
#               about half an hour at each number of Ps), none later than 10 ms unless by the machine's fault
set -euo pipefail
program=$1
filter=${2:-*}
export WEFT_STRESS_SECONDS=${SOAK:-600}
handoffs=${HANDOFFS:-100000000}
log=$(dirname "$program")/soak_stress.log
: >"$log"

# "Procs/Mix." followed by "  EverythingAtOnce/1  # GetParam() = 1", one line a test.
mapfile -t tests < <("$program" --gtest_list_tests --gtest_filter="$filter" |
  awk '/^[^ ]/ && /\.$|\. / { suite = $1; next } /^  / { print suite $1 }')
((${#tests[@]})) || { echo "soak-stress: no test matches '$filter'" >&2; exit 2; }

failed=()
for test in "${tests[@]}"; do
  count=
  [[ $test == *Wakeup.FromOnePToAnother* ]] && count=$handoffs
  begin=$SECONDS
  if WEFT_STRESS_HANDOFFS=$count "$program" --gtest_filter="$test" >"$log.one" 2>&1; then
    verdict=ok
    grep -q '^\[  SKIPPED \]' "$log.one" && verdict=skipped
  else
    verdict=FAILED
    failed+=("$test")
  fi
  printf '%-60s %s, %d s\n' "$test" "$verdict" $((SECONDS - begin))
  if [[ $verdict == FAILED ]]; then cat "$log.one"; else grep '^  ' "$log.one" || true; fi
  cat "$log.one" >>"$log"
done
rm -f "$log.one"
printf '%d tests, %d failed%s; all of it in %s\n' "${#tests[@]}" "${#failed[@]}" "${failed[*]:+: ${failed[*]}}" "$log"
((${#failed[@]} == 0))
