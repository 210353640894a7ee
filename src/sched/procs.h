// SPDX-License-Identifier: Apache-2.0
// Stopping the world and choosing how many Ps there are: what the API, sysmon, audit and dump use.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "sched/waiter.h"

namespace weft::rt {

// Held while the world is stopped, and over the start and the end of a run.
extern constinit parking_lock world_sem;

// What run() throws then.
struct beside_another_run : std::logic_error {
  beside_another_run() : logic_error("weft::run called beside another run") {}
};

// Stops the world for its lifetime. From a goroutine or a plain thread; without a run the world is
// stopped anyway. The holder must not park, and allocates nothing.
class stopped_world {
 public:
  stopped_world();
  ~stopped_world();
  stopped_world(const stopped_world&) = delete;
  stopped_world& operator=(const stopped_world&) = delete;

 private:
  bool stopped_;
  std::int64_t since_ = 0;
};

int get_procs() noexcept;
int set_procs(int n, bool automatic);  // n < 1 only reads; the previous value
int automatic_procs() noexcept;        // CPU limit and affinity
void follow_cpu_limit() noexcept;      // sysmon, once a second

}  // namespace weft::rt
