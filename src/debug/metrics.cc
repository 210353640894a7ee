// SPDX-License-Identifier: Apache-2.0
// debug::metrics: the figures of runtime_stats as Prometheus reads them, under the names that Go's
// own collector gives them, so that a dashboard for Go shows weft. What Go does not have is weft_*.
//
// Runs on the caller's stack.
#include <string>

#include "sched/sched.h"
#include "weft/debug.hpp"

namespace weft::debug {
namespace {

class text {
 public:
  void head(const char* name, const char* type, const char* help) {
    out_ += "# HELP ";
    (out_ += name) += ' ';
    (out_ += help) += "\n# TYPE ";
    (out_ += name) += ' ';
    (out_ += type) += '\n';
  }
  void gauge(const char* name, std::uint64_t v, const char* help) {
    head(name, "gauge", help);
    line(name, "", std::to_string(v));
  }
  void counter(const char* name, std::uint64_t v, const char* help) {
    head(name, "counter", help);
    line(name, "", std::to_string(v));
  }
  void seconds_counter(const char* name, std::uint64_t ns, const char* help) {
    head(name, "counter", help);
    line(name, "", seconds(ns));
  }
  void histogram(const char* name, const debug::histogram& h, const char* help) {
    head(name, "histogram", help);
    std::uint64_t below = 0;
    for (std::size_t i = 0; i + 1 < debug::histogram::buckets; ++i) {
      below += h.count[i];
      line(name, "_bucket{le=\"" + seconds(std::uint64_t{1} << i) + "\"}", std::to_string(below));
    }
    below += h.count[debug::histogram::buckets - 1];
    line(name, "_bucket{le=\"+Inf\"}", std::to_string(below));
    line(name, "_sum", seconds(h.sum_ns));
    line(name, "_count", std::to_string(below));
  }
  // One line for each P there is: f(p) is its value.
  template <class F>
  void for_each_p(const char* name, const char* type, F f, const char* help) {
    head(name, type, help);
    for (std::uint32_t i = 0; i < rt::nprocs(); ++i) {
      if (const rt::P* p = rt::p_at(i))
        line(name, "{p=\"" + std::to_string(i) + "\"}", std::to_string(f(*p)));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  // Decimal, to the nanosecond, whatever the locale says.
  static std::string seconds(std::uint64_t ns) {
    std::string part = std::to_string(ns % 1'000'000'000);
    return std::to_string(ns / 1'000'000'000) + '.' + std::string(9 - part.size(), '0') + part;
  }
  void line(const char* name, const std::string& suffix, const std::string& v) {
    ((((out_ += name) += suffix) += ' ') += v) += '\n';
  }
  std::string out_;
};

}  // namespace

std::string metrics() {
  const stats s = runtime_stats();
  text t;
  t.gauge("go_goroutines", s.goroutines, "Goroutines that exist.");
  t.gauge("go_threads", s.threads, "Threads that run goroutines, idle ones included.");
  t.gauge("go_sched_gomaxprocs_threads", s.procs, "How many goroutines may run at once.");
  t.gauge("go_sched_goroutines_goroutines", s.goroutines, "Goroutines that exist.");
  t.counter("go_sched_goroutines_created_goroutines_total", s.created, "Goroutines ever started.");
  t.gauge("go_sched_goroutines_runnable_goroutines", s.runnable, "Goroutines that wait for a P.");
  t.gauge("go_sched_goroutines_running_goroutines", s.running, "Goroutines that run.");
  t.gauge("go_sched_goroutines_waiting_goroutines", s.waiting, "Goroutines that wait.");
  t.gauge("go_sched_goroutines_not_in_go_goroutines", s.syscall,
          "Goroutines in a call of blocking().");
  t.gauge("go_sched_threads_total_threads", s.threads, "Threads that run goroutines.");
  t.histogram("go_sched_latencies_seconds", s.latency,
              "Time from runnable to running; one wake-up in 64 is timed, and counts for all.");
  t.histogram("go_sched_pauses_total_other_seconds", s.pauses, "How long the world stood still.");
  t.histogram("go_sched_pauses_stopping_other_seconds", s.stopping,
              "How long it took until the world stood still.");
  t.seconds_counter("go_sync_mutex_wait_total_seconds_total", s.mutex_wait_ns,
                    "Time spent waiting for mutex and shared_mutex.");
  t.gauge("weft_sched_idle_procs", s.idle_procs, "Ps that nobody has.");
  t.gauge("weft_sched_spinning_threads", s.spinning, "Threads that look for work.");
  t.gauge("weft_sched_idle_threads", s.idle_threads, "Threads that sleep.");
  t.gauge("weft_sched_global_queue_goroutines", s.global_queue, "Runnable, in the global queue.");
  t.counter("weft_sched_steals_total", s.steals, "Times that a P took work from another.");
  t.counter("weft_sched_parks_total", s.parks, "Times that a goroutine went to wait.");
  t.counter("weft_sched_preemptions_total", s.preemptions, "Goroutines stopped for others.");
  t.counter("weft_sched_handoffs_total", s.handoffs, "Ps that lost their thread.");
  t.counter("weft_sched_switches_total", s.switches, "Times that a goroutine left its P.");
  t.counter("weft_sched_syscalls_total", s.syscalls, "Calls of blocking().");
  t.gauge("weft_sched_leaked_goroutines", s.leaked, "Found by find_leaks: nothing can wake them.");
  t.for_each_p(
      "weft_p_switches_total", "counter", [](const rt::P& p) { return p.count.switches(); },
      "Times that a goroutine left this P.");
  t.for_each_p(
      "weft_p_queued_goroutines", "gauge", [](const rt::P& p) { return p.rq.size(); },
      "Runnable, in the queue of this P.");
  t.for_each_p(
      "weft_p_running", "gauge",
      // As weft_sched_idle_procs counts: one on its way to a thread, which may be slow to come, is
      // not idle.
      [](const rt::P& p) { return rt::is_idle(p.id) ? 0 : 1; }, "1: it is not idle.");
  t.gauge("weft_stacks", s.stacks, "Stacks ever carved.");
  t.gauge("weft_free_stacks", s.free_stacks, "Of them cached.");
  return t.take();
}

}  // namespace weft::debug
