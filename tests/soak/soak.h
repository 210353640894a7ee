// SPDX-License-Identifier: Apache-2.0
// What the parts of weft_soak share. A workload is a function that does a piece of work of some
// milliseconds, checks what came out of it and leaves nothing; its lanes call it again and again,
// all of them at once, while a phase lasts. A phase is one run(). See main.cc for the whole.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <weft/chan.hpp>

#include "base/random.h"
#include "os/clock.h"
#include "support/effort.h"

namespace weft::soak {

using namespace std::chrono_literals;
using rt::nanotime;

inline constexpr std::int64_t ms = 1'000'000, second = 1'000'000'000;

// -- what went wrong

// The first one ends the soak after its phase; each is printed.
void fail(const std::string& what);
bool failed() noexcept;
// Closed by the first failure.
recv_chan<void> failure();

// -- workloads

class lane;
struct workload {
  const char* name;
  int lanes;                     // how many do it at once
  std::uint64_t (*step)(lane&);  // how many operations that was
};
// By the files they are in; all_workloads() has them all.
std::span<const workload> chan_workloads();
std::span<const workload> sync_workloads();
std::span<const workload> time_workloads();
std::span<const workload> life_workloads();
std::span<const workload> net_workloads();
std::span<const workload> thread_workloads();
std::span<const workload> look_workloads();

// Has the runtime open all the descriptors that it keeps for itself.
void open_what_stays();

// How far a workload is. On a cache line of its own.
struct alignas(64) tally {
  const workload* what = nullptr;
  std::atomic<std::uint64_t> steps{0}, operations{0};
  std::atomic<std::int64_t> worst{0};  // ns that one step took
};

// One caller of a workload, with its own random numbers.
class lane {
 public:
  lane(tally& t, std::uint64_t seed) : r(seed), tally_(t) {}

  rt::random r;
  bool chance(std::uint32_t one_in) { return r.below(one_in) == 0; }
  // Cheap in a hot loop; a million failures are no more use than one.
  void check(bool ok, const char* what) {
    if (!ok) [[unlikely]]
      complain(what);
  }
  void step();

 private:
  void complain(const char* what) const;
  tally& tally_;
};

// -- what is set once

struct settings {
  std::uint64_t seed = 0;
  double seconds = 3600;
  int procs = 0;        // 0: another number each phase, and while it lasts
  double stall = 30;    // seconds after which a workload that stands still has failed
  double line = 60;     // seconds between two lines of the report
  std::string scratch;  // a directory of our own
};
extern settings options;

// -- figures of what happens beside the workloads

struct counts {
  std::atomic<std::uint64_t> audits{0}, dumps{0}, leak_hunts{0}, leaks_found{0}, traces{0},
      resizes{0}, phases{0};
  std::atomic<std::uint64_t> left_parked{0}, left_on_threads{0};  // goroutines that runs left
  std::atomic<std::int64_t> worst_sleep{0};   // ns that a goroutine's sleep of 1 ms was late
  std::atomic<std::int64_t> worst_thread{0};  // and a plain thread's: the machine's part
};
extern counts counted;

// audit(), counted; a broken invariant is a failure. Where: for the message.
void audit(const char* where);
void raise_to(std::atomic<std::int64_t>& worst, std::int64_t v) noexcept;

// The name of those that leak on purpose: find_leaks() may report them and nobody else.
inline constexpr const char* leaky_name = "soak-leaky";
// find_leaks(), counted. How many it reported.
std::size_t hunt_leaks();

// -- a plain thread that lives through all phases and between them (outsider.cc)

void start_outsider(std::uint64_t seed);
// Ends it. What it has sent must have been received.
void stop_outsider();
std::uint64_t outsider_step(lane& l);  // the goroutines' side

// -- what a phase leaves behind when its run ends (leavings.cc)

class leavings {
 public:
  explicit leavings(std::uint64_t seed) : r_(seed) {}
  void leave();     // in the run, by its main, at its end
  void clean_up();  // after it: what they waited for works for others

 private:
  rt::random r_;
  bool semaphore_ = false;
  int pipe_[2] = {-1, -1};
};

}  // namespace weft::soak
