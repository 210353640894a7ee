// SPDX-License-Identifier: Apache-2.0
// Timers and contexts, from the benchmarks that Go ships with packages time and context. The timers
// stand among 32 768 others a P that are due in an hour.
#include "list.h"

#include <vector>

namespace {

using bench::parallel;
using std::chrono::nanoseconds;
constexpr std::chrono::hours hour(1);

// Plants the others, then f as usual.
template <void (*f)(long)>
void planted(const char* name, long n) {
  std::vector<weft::timer> others;
  for (long i = 0; i < 32'768L * weft::procs(); ++i)
    others.push_back(weft::after_func(hour, [] {}));
  bench::ns_per_op<f>(name, n);
  for (weft::timer& t : others) t.stop();
}

// Each timer starts the next one; 1000 a chain.
void after_func_chain(long n) {
  parallel(n / 1000 + 1, [](long turns) {
    for (long i = 0; i < turns; ++i) {
      const weft::chan<void> done;
      struct step {
        long left;
        weft::chan<void> done;
        void operator()() const {
          if (left == 0) return done.send();
          weft::after_func(nanoseconds(0), step{left - 1, done});
        }
      };
      weft::after_func(nanoseconds(0), step{1000, done});
      done.recv();
    }
  });
}

void after_func_at_once(long n) {
  parallel(n / 1000 + 1, [](long turns) {
    for (long i = 0; i < turns; ++i) {
      weft::wait_group wg;
      wg.add(1000);
      for (int k = 0; k < 1000; ++k) weft::after_func(nanoseconds(0), [&] { wg.done(); });
      wg.wait();
    }
  });
}

void after(long n) {
  parallel(n, [](long turns) {
    for (long i = 0; i < turns; ++i) (void)weft::after(nanoseconds(1)).recv();
  });
}

void stop_chan(long n) {
  parallel(n, [](long turns) {
    for (long i = 0; i < turns; ++i) weft::timer(hour).stop();
  });
}

void stop_func(long n) {
  parallel(n, [](long turns) {
    for (long i = 0; i < turns; ++i) weft::after_func(hour, [] {}).stop();
  });
}

// 1000 are set, then all are stopped.
void start_stop(long n) {
  parallel(n / 1000 + 1, [](long turns) {
    std::vector<weft::timer> timers(1000);
    for (long i = 0; i < turns; ++i) {
      for (weft::timer& t : timers) t = weft::after_func(hour, [] {});
      for (weft::timer& t : timers) t.stop();
    }
  });
}

void reset(long n) {
  parallel(n, [](long turns) {
    weft::timer t(hour);
    for (long i = 0; i < turns; ++i) t.reset(hour);
    t.stop();
  });
}

// 1000 goroutines sleep for a nanosecond.
void sleep1000(long n) {
  parallel(n / 1000 + 1, [](long turns) {
    for (long i = 0; i < turns; ++i) {
      weft::wait_group wg;
      for (int k = 0; k < 1000; ++k) wg.go([] { weft::sleep_for(nanoseconds(1)); });
      wg.wait();
    }
  });
}

void ticker(long n) {
  parallel(n, [](long turns) {
    weft::ticker t(nanoseconds(1));
    for (long i = 0; i < turns; ++i) (void)t.c.recv();
    t.stop();
  });
}

void ticker_reset(long n) {
  parallel(n, [](long turns) {
    weft::ticker t(nanoseconds(1));
    for (long i = 0; i < turns; ++i) t.reset(nanoseconds(2 + i % 2));
    t.stop();
  });
}

// Timers of 1 ms on the other Ps while their maker computes: how late they are on average.
void latency(const char* name, long n) {
  std::vector<double> late;
  for (long i = 0; i < n; ++i) {
    std::atomic<bool> fired{false};
    weft::clock::time_point at;
    const auto due = weft::clock::now() + std::chrono::milliseconds(1);
    weft::after_func(std::chrono::milliseconds(1), [&] {
      at = weft::clock::now();
      fired.store(true, std::memory_order_release);
    });
    while (!fired.load(std::memory_order_acquire)) {
    }
    late.push_back(std::chrono::duration<double, std::micro>(at - due).count());
  }
  double sum = 0;
  for (const double d : late) sum += d;
  bench::report(name, sum / static_cast<double>(n), "us");
}

void common_parent(long n) {
  auto [root, cancel_root] = weft::with_cancel(weft::background());
  parallel(n, [&parent = root](long turns) {
    for (long i = 0; i < turns; ++i) weft::with_cancel(parent).second();
  });
  cancel_root();
}

// 10 are made and cancelled a turn.
void ten_timeouts(long n) {
  parallel(n, [](long turns) {
    std::vector<std::pair<weft::context, weft::cancel_fn>> ten(10);
    for (long i = 0; i < turns; ++i) {
      for (auto& c : ten) c = weft::with_timeout(weft::background(), hour);
      for (auto& c : ten) c.second();
    }
  });
}

// The same among `live` others.
template <long live>
void with_timeout(const char* name, long n) {
  std::vector<std::pair<weft::context, weft::cancel_fn>> others;
  for (long i = 0; i < live; ++i)
    others.push_back(weft::with_timeout(weft::background(), hour + std::chrono::seconds(i)));
  bench::ns_per_op<ten_timeouts>(name, n);
  for (auto& c : others) c.second();
}

template <int depth>
void cancel_tree(long n) {
  for (long i = 0; i < n; ++i) {
    auto [root, cancel] = weft::with_cancel(weft::background());
    std::vector<weft::context> chain{root};
    for (int k = 1; k < depth; ++k) chain.push_back(weft::with_cancel(chain.back()).first);
    cancel();
  }
}

void check_canceled(long n) {
  auto [ctx, cancel] = weft::with_cancel(weft::background());
  cancel();
  for (long i = 0; i < n; ++i)
    if (!ctx.err()) std::abort();
}

void check_done(long n) {
  auto [ctx, cancel] = weft::with_cancel(weft::background());
  for (long i = 0; i < n; ++i) weft::select(weft::recv(ctx.done()), weft::otherwise());
  cancel();
}

template <int depth>
void deep_value(long n) {
  weft::context ctx = weft::with_value(weft::background(), -1, 7);
  for (int i = 0; i < depth; ++i) ctx = weft::with_value(ctx, i, i);
  for (long i = 0; i < n; ++i)
    if (*ctx.value<int>(-1) != 7) std::abort();
}

constexpr bench::workload workloads[] = {
    {"list_after_func_chain", planted<after_func_chain>},
    {"list_after_func_at_once", planted<after_func_at_once>},
    {"list_after", planted<after>},
    {"list_timer_stop_chan", planted<stop_chan>},
    {"list_timer_stop_func", planted<stop_func>},
    {"list_timer_start_stop", planted<start_stop>},
    {"list_timer_reset", planted<reset>},
    {"list_sleep1000", planted<sleep1000>},
    {"list_ticker", planted<ticker>},
    {"list_ticker_reset", planted<ticker_reset>},
    {"list_timer_latency", latency},
    {"list_context_common_parent", bench::ns_per_op<common_parent>},
    {"list_context_timeout_40", with_timeout<40>},
    {"list_context_timeout_4000", with_timeout<4000>},
    {"list_context_timeout_400000", with_timeout<400'000>},
    {"list_context_tree_1", bench::ns_per_op<cancel_tree<1>>},
    {"list_context_tree_10", bench::ns_per_op<cancel_tree<10>>},
    {"list_context_tree_100", bench::ns_per_op<cancel_tree<100>>},
    {"list_context_tree_1000", bench::ns_per_op<cancel_tree<1000>>},
    {"list_context_canceled", bench::ns_per_op<check_canceled>},
    {"list_context_done", bench::ns_per_op<check_done>},
    {"list_context_value_10", bench::ns_per_op<deep_value<10>>},
    {"list_context_value_100", bench::ns_per_op<deep_value<100>>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
