// SPDX-License-Identifier: Apache-2.0
// Plain threads, started and joined outside run(): they stop the world, and a goroutine that joined
// one would keep the P that it waits for.
#include "soak/watch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <unistd.h>

#include <weft/debug.hpp>
#include <weft/go.hpp>

namespace weft::soak {
namespace {

std::atomic<stage> now_in{stage::between};
std::atomic<std::int64_t> entered{0};

std::int64_t stall_ns() { return static_cast<std::int64_t>(options.stall * second); }

// Says what hangs, where everybody stands, and ends the process: nothing can be waited for any
// more.
[[noreturn]] void hang(const std::string& what) {
  std::printf("soak: %s for %.0f s; seed %llu\n", what.c_str(), options.stall,
              static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  // If the world cannot be stopped, the dump hangs as well.
  std::atomic<bool> dumped{false};
  std::thread([&dumped] {
    debug::dump(std::cerr);
    std::cerr.flush();
    dumped = true;
  }).detach();
  for (int i = 0; i < 200 && !dumped; ++i) std::this_thread::sleep_for(100ms);
  std::error_code ignored;
  std::filesystem::remove_all(options.scratch, ignored);
  ::_exit(1);
}

// 1234567 as "1.2M".
std::string brief(double v) {
  const char* unit = "";
  for (const char* next : {"k", "M", "G"}) {
    if (v < 1000) break;
    v /= 1000;
    unit = next;
  }
  char text[32];
  std::snprintf(text, sizeof text, v < 10 ? "%.1f%s" : "%.0f%s", v, unit);
  return text;
}

// The shortest time by powers of two that all but one in `part` keep to, in ns.
double quantile(const debug::histogram& h, double part) {
  std::uint64_t all = 0, so_far = 0;
  for (const std::uint64_t n : h.count) all += n;
  for (std::size_t i = 0; i < debug::histogram::buckets; ++i) {
    so_far += h.count[i];
    if (so_far != 0 && static_cast<double>(all - so_far) <= static_cast<double>(all) / part)
      return static_cast<double>(1ULL << i);
  }
  return 0;
}

}  // namespace

void enter(stage s) {
  entered.store(nanotime());
  now_in.store(s);
}

watch::watch(std::span<tally> tallies, std::uint64_t seed)
    : tallies_(tallies), seen_(tallies.size()), begin_(nanotime()) {
  line_since_ = begin_;
  line_at_ = begin_ + static_cast<std::int64_t>(options.line * second);
  enter(stage::between);
  auditor_ = std::thread([this, seed] { audit_at_random(seed); });
  watcher_ = std::thread([this] { look_on(); });
}

watch::~watch() {
  stop_ = true;
  auditor_.join();
  watcher_.join();
}

void watch::audit_at_random(std::uint64_t seed) {
  rt::random r(seed);
  while (!stop_) {
    audit("from a thread");
    // Now and then several in a row.
    if (r.below(8) != 0) std::this_thread::sleep_for(std::chrono::microseconds(r.below(50'000)));
  }
}

void watch::look_on() {
  while (!stop_) {
    const std::int64_t before = nanotime();
    std::this_thread::sleep_for(20ms);
    const std::int64_t now = nanotime();
    raise_to(counted.worst_thread, now - before - 20 * ms);
    expect_progress(now);
    if (now >= line_at_) print_line(now);
  }
}

void watch::expect_progress(std::int64_t now) {
  const stage s = now_in.load();
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    progress& p = seen_[i];
    const std::uint64_t steps = tallies_[i].steps;
    if (steps != p.steps) {
      p.steps = steps;
      p.since = now;
    } else if (s == stage::working && now - std::max(p.since, entered.load()) > stall_ns()) {
      hang(std::string(tallies_[i].what->name) + " has not moved");
    }
  }
  if (s != stage::working && now - entered.load() > stall_ns() && now_in.load() == s)
    hang(s == stage::draining ? "goroutines of the phase have not ended"
                              : "run() has not returned");
}

void watch::print_line(std::int64_t now) {
  const double passed = static_cast<double>(now - line_since_) / second;
  const long total = static_cast<long>((now - begin_) / second);
  std::string line;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const std::uint64_t n = tallies_[i].operations;
    line += std::string(" ") + tallies_[i].what->name + ' ' +
            brief(static_cast<double>(n - seen_[i].printed) / passed);
    seen_[i].printed = n;
  }
  const gauges g = look_at_process();
  std::printf(
      "%ld:%02ld:%02ld phase %llu, %d Ps; per second:%s; %llu audits; %zu MiB, %zu "
      "descriptors, %zu threads, %zu goroutines\n",
      total / 3600, total / 60 % 60, total % 60, static_cast<unsigned long long>(counted.phases),
      weft::procs(), line.c_str(), static_cast<unsigned long long>(counted.audits),
      g.resident / 1024, g.descriptors, g.threads, weft::num_goroutines());
  std::fflush(stdout);
  line_since_ = now;
  line_at_ = now + static_cast<std::int64_t>(options.line * second);
}

void print_report(std::span<const tally> tallies, double seconds, const gauges& first,
                  const gauges& last) {
  std::printf("\n%-12s %6s %14s %12s %12s %12s\n", "workload", "lanes", "operations", "per second",
              "steps", "worst ms");
  for (const tally& t : tallies) {
    std::printf("%-12s %6d %14llu %12.0f %12llu %12.1f\n", t.what->name, t.what->lanes,
                static_cast<unsigned long long>(t.operations),
                static_cast<double>(t.operations) / seconds,
                static_cast<unsigned long long>(t.steps), static_cast<double>(t.worst) / ms);
  }
  const debug::stats s = debug::runtime_stats();
  const auto n = [](std::uint64_t v) { return static_cast<unsigned long long>(v); };
  std::printf("\n%-24s %llu phases in %.0f s, %llu changes of the number of Ps\n", "runs",
              n(counted.phases), seconds, n(counted.resizes));
  std::printf("%-24s %llu audits, %llu dumps, %llu leak hunts (%llu found), %llu traces\n",
              "looked", n(counted.audits), n(counted.dumps), n(counted.leak_hunts),
              n(counted.leaks_found), n(counted.traces));
  std::printf("%-24s %llu goroutines, %llu parks, %llu preemptions, %llu hand-offs, %llu steals\n",
              "scheduler", n(s.created), n(s.parks), n(s.preemptions), n(s.handoffs), n(s.steals));
  std::printf("%-24s a sleep of 1 ms was at most %.1f ms late, one of a plain thread %.1f ms\n",
              "latency", static_cast<double>(counted.worst_sleep) / ms,
              static_cast<double>(counted.worst_thread) / ms);
  std::printf("%-24s 99%% below %.2f ms, 99.9%% below %.2f ms\n", "from runnable to running",
              quantile(s.latency, 100) / ms, quantile(s.latency, 1000) / ms);
  std::printf("%-24s 99%% of the stops below %.2f ms, the longest below %.2f ms\n", "the world",
              quantile(s.pauses, 100) / ms, quantile(s.pauses, 1e18) / ms);
  std::printf("%-24s %llu parked, %llu on their threads\n", "left behind", n(counted.left_parked),
              n(counted.left_on_threads));
  std::printf("%-24s %10s %10s\n", "", "first", "last");
  const auto row = [](const char* what, std::size_t a, std::size_t b) {
    std::printf("%-24s %10zu %10zu\n", what, a, b);
  };
  row("memory, KiB", first.anonymous, last.anonymous);
  row("resident, KiB", first.resident, last.resident);
  row("descriptors", first.descriptors, last.descriptors);
  row("threads", first.threads, last.threads);
}

}  // namespace weft::soak
