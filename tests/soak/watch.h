// SPDX-License-Identifier: Apache-2.0
// The threads beside the runs: one audits at random moments, one watches that every workload moves
// on and prints a line now and then. And the report at the end.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "soak/gauges.h"
#include "soak/soak.h"

namespace weft::soak {

enum class stage : std::uint8_t { between, working, draining };
// Tells the watch what to expect; each but `working` has to end within the limit.
void enter(stage s);

class watch {
 public:
  watch(std::span<tally> tallies, std::uint64_t seed);
  ~watch();

 private:
  struct progress {
    std::uint64_t steps = 0;
    std::int64_t since = 0;
    std::uint64_t printed = 0;  // operations at the last line
  };
  void audit_at_random(std::uint64_t seed);
  void look_on();
  void expect_progress(std::int64_t now);
  void print_line(std::int64_t now);

  std::span<tally> tallies_;
  std::vector<progress> seen_;
  std::int64_t begin_, line_at_, line_since_;
  std::atomic<bool> stop_{false};
  std::thread auditor_, watcher_;
};

void print_report(std::span<const tally> tallies, double seconds, const gauges& first,
                  const gauges& last);

}  // namespace weft::soak
