// SPDX-License-Identifier: Apache-2.0
// Contexts under load: cancellation against creation, destruction, stops, tokens and other
// cancellations, by goroutines and plain threads.
#include <array>
#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "context_tree/tree_testing.h"
#include "context_tree/watch.h"
#include "stress/support.h"
#include "weft/context.hpp"
#include "weft/select.hpp"

namespace weft::stress {
namespace {

class Context : public Procs {};

// Runs f(random) in goroutines and two plain threads until the time is up.
template <class F>
void hammer(int procs, const char* what, F f) {
  const std::int64_t end = nanotime() + duration_ns(0.4);
  std::atomic<std::uint64_t> steps{0};
  watchdog dog(steps, what);
  const auditor audits;
  const auto work = [&](std::uint32_t seed) {
    rt::random r(seed);
    while (nanotime() < end) {
      f(r);
      ++steps;
    }
  };
  test::run_clean(test::with_procs(procs), [&] {
    event a_done, b_done;  // a join would keep the P from those the threads wait for
    std::thread a([&] {
      work(101);
      a_done.set();
    });
    std::thread b([&] {
      work(102);
      b_done.set();
    });
    {
      scope s;
      for (std::uint32_t i = 0; i < 4; ++i) s.go([&, i] { work(i + 1); });
    }
    a_done.wait();
    b_done.wait();
    a.join();
    b.join();
  });
}

// One shared tree, in which everybody makes, cancels and drops.
TEST_P(Context, SharedTree) {
  checker check;
  std::atomic<int> functions_run{0}, functions_due{0};
  auto [root, cancel_root] = with_cancel(background());
  hammer(procs(), "Context.SharedTree", [&, root = root](rt::random& r) {
    auto [a, cancel_a] = with_cancel(root);
    auto [b, cancel_b] = with_cancel(with_value(a, 1, 2));
    auto [c, cancel_c] = with_cancel(b);
    stop_fn stop;
    const bool with_function = r.below(4) == 0;
    if (with_function) {
      stop = after_cancel(b, [&, b = b] {
        check(b.err() == errc::canceled, "a function runs before its context is cancelled");
        ++functions_run;
      });
    }
    const recv_chan<void> done = r.below(2) == 0 ? c.done() : recv_chan<void>();
    switch (r.below(4)) {
      case 0:
        go([cancel = cancel_a] { cancel(); });
        cancel_b();
        check(c.err() == errc::canceled, "a child is not done after cancel");
        break;
      case 1:
        go([cancel = cancel_c] { cancel(); });
        cancel_a();
        check(b.err() == errc::canceled && c.err() == errc::canceled, "not all below are done");
        check(done == nullptr || done.closed(), "done is open after cancel");
        break;
      case 2:
        go([cancel = cancel_b, c = c] { cancel(); });
        if (with_function && stop()) return;
        c.done().recv();
        break;
      default:  // drops everything
        if (with_function) check(stop(), "a function was started by nobody");
        return;
    }
    if (with_function) {
      ++functions_due;
      if (stop()) {
        --functions_due;
      } else {
        stop.wait();
      }
    }
  });
  check.report();
  EXPECT_EQ(functions_run, functions_due);
  EXPECT_EQ(detail::child_count(root), 0U);
  EXPECT_FALSE(root.err());
}

// The root is cancelled while others make children of it.
TEST_P(Context, CancelAgainstCreation) {
  checker check;
  hammer(procs(), "Context.CancelAgainstCreation", [&](rt::random& r) {
    auto [root, cancel] = with_cancel(background());
    std::array<context, 4> made;
    {
      scope s;
      for (context& m : made) {
        s.go([&, root = root, dig = r.below(3)] {
          context c = root;
          for (std::uint32_t i = 0; i <= dig; ++i) c = with_cancel(with_value(c, i, i)).first;
          (void)with_cancel(c);
          m = c;
          if (dig == 0) c.done().recv();
        });
      }
      if (r.below(2) == 0) yield();
      cancel();
    }
    for (const context& m : made) check(m.done().closed(), "a child escaped");
    check(detail::child_count(root) == 0, "a cancelled context has children");
  });
  check.report();
}

// Functions are started or stopped, never both, never neither.
TEST_P(Context, StopAgainstCancel) {
  checker check;
  hammer(procs(), "Context.StopAgainstCancel", [&](rt::random& r) {
    auto [ctx, cancel] = with_cancel(background());
    auto ran = std::make_shared<std::atomic<int>>(0);
    const stop_fn stop =
        after_cancel(r.below(2) == 0 ? ctx : with_cancel(ctx).first, [ran] { ran->fetch_add(1); });
    std::atomic<int> stopped{0};
    {
      scope s;
      s.go([cancel = cancel] { cancel(); });
      s.go([&] { stopped += stop() ? 1 : 0; });
      if (r.below(2) == 0) stopped += stop() ? 1 : 0;
    }
    stop.wait();
    check(*ran + stopped == 1, "a function was started and stopped, or neither");
  });
  check.report();
}

// Tokens, watches, and several cancellations of nested subtrees at once.
TEST_P(Context, EverythingAtOnce) {
  checker check;
  struct noting : detail::cancel_watch {
    std::atomic<int> calls{0};
    static void note(cancel_watch* w) noexcept { ++static_cast<noting*>(w)->calls; }
  };
  hammer(procs(), "Context.EverythingAtOnce", [&](rt::random& r) {
    std::stop_source source;
    auto [root, cancel_root] = with_cancel(background());
    auto [mid, cancel_mid] = with_cancel(root, source.get_token());
    auto [leaf, cancel_leaf] = with_cancel(mid);
    const std::stop_token token = leaf.stop_token();
    {
      scope s(root);
      s.go([cancel = cancel_root] { cancel(); });
      if (r.below(2) == 0) s.go([cancel = cancel_mid] { cancel(); });
      if (r.below(2) == 0) s.go([&] { source.request_stop(); });
      s.go([cancel = cancel_leaf] { cancel(); });
      s.go([&] { s.context().done().recv(); });
      s.go([&, leaf = leaf] {
        noting n;
        const bool begun = n.begin(leaf, noting::note);
        n.end();
        check(n.calls == 0 || begun, "a watch was called that had not begun");
      });
      s.go([&, leaf = leaf, n = r.below(3)] {
        context c = leaf;
        for (std::uint32_t i = 0; i < n; ++i) c = with_cancel(c).first;
        std::stop_token t = c.stop_token();
        c.done().recv();
        check(c.err() == errc::canceled, "done without an error");
      });
    }
    check(token.stop_requested(), "a token was not requested to stop");
    for (const context& c : {root, mid, leaf})
      check(c.err() == errc::canceled && c.done().closed(), "somebody is not done");
  });
  check.report();
}

// A context is cancelled by hand just before its deadline, and is so large that its slice is over
// long before it is done. Who is stopped then has claimed what the deadline finds claimed and spins
// for, on g0: at one P they would wait for each other.
TEST_P(Context, CancelAgainstItsOwnDeadline) {
  constexpr int width = 4000;
  std::atomic<std::uint64_t> rounds{0};
  checker check;
  watchdog dog(rounds, "Context.CancelAgainstItsOwnDeadline");
  config c = test::with_procs(procs());
  c.quantum = std::chrono::milliseconds(1);
  test::run_clean(c, [&] {
    std::atomic<bool> stop{false};
    scope hogs;
    hogs.go([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
    std::vector<context> below;
    for (const std::int64_t end = nanotime() + duration_ns(1); nanotime() < end; ++rounds) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(15);
      auto [root, cancel] = with_deadline(background(), deadline);
      for (int i = 0; i < width; ++i) below.push_back(with_cancel(root).first);
      // From here on without a call of weft until the deadline is close.
      const auto before = std::chrono::microseconds(rounds % 8 * 50);
      while (std::chrono::steady_clock::now() < deadline - before) {
      }
      cancel();
      check(root.err() == errc::canceled || root.err() == errc::deadline_exceeded, "no reason");
      check(root.done().closed() && below.back().done().closed(), "somebody is not done");
      below.clear();
    }
    stop.store(true);
    hogs.wait();
  });
  check.report();
}

WEFT_STRESS_PROCS(Context);

}  // namespace
}  // namespace weft::stress
