// SPDX-License-Identifier: Apache-2.0
// Those who look at the others, and change the number of Ps under them: audits, dumps, leak hunts,
// profiles, figures, traces. Each at random moments, with sleeps in between: they stop the world.
#include <cstdint>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <weft/debug.hpp>
#include <weft/go.hpp>
#include <weft/time.hpp>

#include "soak/soak.h"

namespace weft::soak {
namespace {

void rest(lane& l, std::uint32_t up_to_ms) {
  weft::sleep_for(std::chrono::microseconds(l.r.below(up_to_ms * 1000)));
}

std::uint64_t audits(lane& l) {
  rest(l, 40);
  audit("from a goroutine");
  return 1;
}

std::uint64_t resizes(lane& l) {
  static constexpr int sizes[] = {1, 2, 3, 16};
  rest(l, 60);
  if (options.procs != 0) return 1;
  weft::set_procs(sizes[l.r.below(std::size(sizes))]);
  ++counted.resizes;
  return 1;
}

std::uint64_t looks(lane& l) {
  rest(l, 200);
  const debug::stats s = debug::runtime_stats();
  l.check(s.goroutines > 0 && s.procs > 0 && s.threads > 0, "the figures of the runtime");
  std::ostringstream out;
  switch (l.r.below(8)) {
    case 0:
    case 1:
      debug::dump(out);
      ++counted.dumps;
      l.check(out.str().find("goroutine ") != std::string::npos, "a dump");
      break;
    case 2:
      debug::goroutine_profile(out);
      l.check(out.str().starts_with("goroutine profile: total "), "a profile");
      break;
    case 3:
      l.check(debug::metrics().find("go_goroutines") != std::string::npos, "the metrics");
      break;
    case 4:
      hunt_leaks();
      break;
    default:
      break;
  }
  return 1;
}

// One trace at a time in the process, so there is one lane.
std::uint64_t traces(lane& l) {
  rest(l, 1000);
  const std::string path = options.scratch + "/trace-" + std::to_string(l.r.next());
  if (l.chance(3)) {
    debug::trace::record({.bytes = 1024 * 1024});
    rest(l, 40);
    debug::trace::write(path);
  } else {
    debug::trace::start(path, {.stacks = l.chance(2), .buffer = 8 * 1024 * 1024});
    rest(l, 40);
  }
  debug::trace::stop();
  struct stat st {};
  l.check(::stat(path.c_str(), &st) == 0 && st.st_size > 0, "a trace without a file");
  ::unlink(path.c_str());
  ++counted.traces;
  return 1;
}

}  // namespace

std::span<const workload> look_workloads() {
  static constexpr workload all[] = {
      {"audit", 1, audits},
      {"procs", 1, resizes},
      {"look", 1, looks},
      {"trace", 1, traces},
  };
  return all;
}

}  // namespace weft::soak
