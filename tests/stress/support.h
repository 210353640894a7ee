// SPDX-License-Identifier: Apache-2.0
// What the stress tests share: how long, on how many Ps, checks that are cheap in a hot loop,
// memory, and a watch on the machine.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <weft/debug.hpp>
#include <weft/detail/event.hpp>
#include <weft/go.hpp>
#include <weft/run.hpp>

#include "base/random.h"
#include "os/clock.h"
#include "support/runtime.h"

namespace weft::stress {

using rt::nanotime;
using weft::detail::event;

inline constexpr std::int64_t ms = 1'000'000, second = 1'000'000'000;

inline std::uint64_t from_env(const char* name, std::uint64_t otherwise_value) {
  const char* s = std::getenv(name);
  return s != nullptr && *s != '\0' ? std::strtoull(s, nullptr, 10) : otherwise_value;
}
// 0 unless WEFT_STRESS_SECONDS says how long each test shall take (make soak-stress).
inline double wanted_seconds() {
  const char* s = std::getenv("WEFT_STRESS_SECONDS");
  return s != nullptr ? std::atof(s) : 0;
}
inline std::int64_t duration_ns(double by_default) {
  const double s = wanted_seconds();
  return static_cast<std::int64_t>((s > 0 ? s : by_default * test::effort()) * second);
}

// One run per number of Ps.
class Procs : public ::testing::TestWithParam<int> {
 protected:
  static int procs() { return GetParam(); }
};
#define WEFT_STRESS_PROCS(suite)                    \
  INSTANTIATE_TEST_SUITE_P(                         \
      Procs, suite, ::testing::Values(1, 2, 3, 16), \
      [](const ::testing::TestParamInfo<int>& i) { return std::to_string(i.param); })

// EXPECT costs too much in a hot loop, and a million failures are no more use than one.
class checker {
 public:
  void operator()(bool ok, const char* what) {
    if (ok) [[likely]]
      return;
    failures_.fetch_add(1, std::memory_order_relaxed);
    const char* none = nullptr;
    first_.compare_exchange_strong(none, what);
  }
  void report() const {
    EXPECT_EQ(failures_, 0) << "first: " << (first_ != nullptr ? first_.load() : "");
  }

 private:
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<const char*> first_{nullptr};
};

// A field of /proc/self/status, in KiB.
inline std::size_t status_kib(const char* name) {
  std::FILE* f = std::fopen("/proc/self/status", "re");
  if (f == nullptr) return 0;
  char line[256];
  std::size_t v = 0;
  const std::size_t n = std::strlen(name);
  while (std::fgets(line, sizeof line, f) != nullptr) {
    if (std::strncmp(line, name, n) == 0 && line[n] == ':')
      v = std::strtoul(line + n + 1, nullptr, 10);
  }
  std::fclose(f);
  return v;
}

// Ends the process if the count stands still for a minute: a lost wake-up would otherwise hang the
// test.
class watchdog {
 public:
  explicit watchdog(const std::atomic<std::uint64_t>& progress, const char* what)
      : thread_([this, &progress, what] {
          std::uint64_t last = progress;
          std::int64_t since = nanotime();
          while (!stop_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            const std::uint64_t now = progress;
            if (now != last) {
              last = now;
              since = nanotime();
            } else if (nanotime() - since > 60 * second) {
              std::fprintf(stderr, "%s: nothing has moved for a minute after %llu steps\n", what,
                           static_cast<unsigned long long>(now));
              std::abort();
            }
          }
        }) {}
  ~watchdog() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Audits the scheduler at random moments while it lives. Its thread stops the world, so it is made
// and destroyed outside `run`: a goroutine that joined it would keep the P that it waits for.
class auditor {
 public:
  auditor() : thread_([this] { audit(); }) {}
  ~auditor() {
    stop_ = true;
    thread_.join();
    EXPECT_GT(audits_, 0U);
    EXPECT_EQ(broken_, 0U) << "audits of " << audits_ << " found something";
  }

 private:
  void audit() {
    rt::random r(11);
    do {
      if (debug::audit() != 0) ++broken_;
      ++audits_;
      std::this_thread::sleep_for(std::chrono::microseconds(r.below(20'000)));
    } while (!stop_);
  }

  std::uint64_t audits_ = 0, broken_ = 0;  // the thread's until it has ended
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// What the machine does to us meanwhile. A plain thread looks every millisecond at three things:
// how much later than it asked for the kernel let it run (a stopped virtual machine, a CPU taken
// away); how long each thread of this process has been ready to run without getting a CPU (the
// second number of /proc/self/task/*/schedstat: other programs, or more of our own threads than
// CPUs); and what the host of a virtual machine has kept for others (/proc/stat; a thread that
// loses its CPU in that way runs on, as far as the guest can tell, and the watch may have been on
// the other CPU). The kernel counts that at the CPU's next tick, so two ticks are waited for. A
// hand-off is the work of two threads, so the machine is blamed for what the two that were kept
// waiting longest have waited. A goroutine that was late because nobody woke its thread adds to
// neither: a thread that sleeps waits for no CPU.
class machine_watch {
 public:
  machine_watch() : thread_([this] { watch(); }) {
    while (count_.load() == 0) std::this_thread::yield();
  }
  ~machine_watch() {
    stop_ = true;
    thread_.join();
  }

  // How much of [from, to], which has just passed, the machine may be blamed for, in ns.
  std::int64_t explains(std::int64_t from, std::int64_t to) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(2 * tick));
    const std::uint64_t now = count_.load();
    while (count_.load() < now + 2) std::this_thread::yield();  // until there is a sample behind it
    std::lock_guard hold(lock_);
    std::int64_t late = 0;
    const sample* before = &samples_.front();
    const sample* after = &samples_.back();
    for (const sample& s : samples_) {
      if (s.at <= from) before = &s;
      if (s.at > from) late = std::max(late, s.late);
      if (s.at >= to) {
        after = &s;
        break;
      }
    }
    std::int64_t first = 0, second_longest = 0;
    for (const auto& [tid, waited] : after->waited) {
      const auto old = std::find_if(before->waited.begin(), before->waited.end(),
                                    [t = tid](const auto& p) { return p.first == t; });
      const std::int64_t grown = waited - (old != before->waited.end() ? old->second : 0);
      second_longest = std::max(second_longest, std::min(first, grown));
      first = std::max(first, grown);
    }
    const std::int64_t stolen = samples_.back().stolen - before->stolen;
    return std::max(late, first + second_longest + stolen);
  }

 private:
  struct sample {
    std::int64_t at = 0;
    std::int64_t late = 0;
    std::int64_t stolen = 0;
    std::vector<std::pair<int, std::int64_t>> waited;  // by thread: ns without a CPU since it began
  };
  static constexpr std::int64_t period = ms, tick = 10 * ms;
  static constexpr std::size_t kept = 4096;

  // By all CPUs together, in ns.
  static std::int64_t stolen_so_far() {
    std::ifstream stat("/proc/stat");
    std::string cpu;
    std::int64_t ticks[8] = {};
    stat >> cpu;
    for (std::int64_t& t : ticks) stat >> t;
    return ticks[7] * tick;  // in units of 10 ms, whatever the kernel's own tick
  }
  static std::vector<std::pair<int, std::int64_t>> look() {
    std::vector<std::pair<int, std::int64_t>> all;
    DIR* d = ::opendir("/proc/self/task");
    if (d == nullptr) return all;
    while (const dirent* e = ::readdir(d)) {
      if (e->d_name[0] == '.') continue;
      char path[64], text[128];
      std::snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", e->d_name);
      const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      const ssize_t n = ::read(fd, text, sizeof text - 1);
      ::close(fd);
      if (n <= 0) continue;
      text[n] = '\0';
      char* end = nullptr;
      (void)std::strtoll(text, &end, 10);
      all.emplace_back(std::atoi(e->d_name), std::strtoll(end, nullptr, 10));
    }
    ::closedir(d);
    return all;
  }
  void watch() {
    std::int64_t next = nanotime(), stolen = 0;
    while (!stop_) {
      const timespec t{next / second, next % second};
      ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
      sample s;
      s.at = nanotime();
      s.late = s.at - next;
      if (count_ % 8 == 0) stolen = stolen_so_far();  // a tick is longer than that
      s.stolen = stolen;
      s.waited = look();
      next = std::max(next + period, s.at);
      {
        std::lock_guard hold(lock_);
        samples_.push_back(std::move(s));
        if (samples_.size() > kept) samples_.pop_front();
      }
      ++count_;
    }
  }

  std::mutex lock_;
  std::deque<sample> samples_;
  std::atomic<std::uint64_t> count_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace weft::stress
