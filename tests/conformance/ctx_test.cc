// SPDX-License-Identifier: Apache-2.0
// CTX: contexts, one section an id. Long because CTX-06 is a table of 23 rows.
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "context_tree/tree_testing.h"
#include "support/runtime.h"
#include "weft/context.hpp"
#include "weft/select.hpp"

namespace weft::test {
namespace {

using weft::detail::child_count;

bool finished(const context& c, errc why = errc::canceled) {
  return c.done().closed() && c.err() == why;
}
bool live(const context& c) {
  return c.done().try_recv() == recv_status::empty && !c.err() && c.cause() == nullptr;
}

std::exception_ptr because(const char* why) {
  return std::make_exception_ptr(std::runtime_error(why));
}
std::string text_of(const std::exception_ptr& e) {
  if (e == nullptr) return "";
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) {
    return x.what();
  }
}
const std::string canceled = "context canceled", too_late = "context deadline exceeded";

// -- CTX-01

TEST(Conformance, CTX_01_a_parent_finishes_its_children) {
  run_clean([] {
    auto [parent, cancel] = with_cancel(background());
    auto [cancel_child, stop_child] = with_cancel(parent);
    const context value_child = with_value(parent, "key", "value");
    auto [timer_child, stop_timer] = with_timeout(value_child, 1000h);
    std::atomic<int> ran{0};
    const stop_fn stop = after_cancel(parent, [&] { ++ran; });
    for (const context& c : {parent, cancel_child, value_child, timer_child}) EXPECT_TRUE(live(c));
    EXPECT_EQ(child_count(parent), 3U);

    cancel();
    EXPECT_EQ(child_count(parent), 0U);
    for (const context& c : {parent, cancel_child, value_child, timer_child})
      EXPECT_TRUE(finished(c));
    EXPECT_FALSE(stop());
    stop.wait();
    EXPECT_EQ(ran, 1);

    EXPECT_TRUE(finished(with_cancel(parent).first));
    EXPECT_TRUE(finished(with_timeout(parent, 1000h).first));
    EXPECT_TRUE(finished(with_value(parent, 1, 2)));
    EXPECT_EQ(child_count(parent), 0U);
  });
}

TEST(Conformance, CTX_01_a_child_finishes_first) {
  run_clean([] {
    for (const context& root : {background(), with_value(background(), 1, 2)}) {
      auto [parent, stop_parent] = with_cancel(root);
      for (const bool timed : {false, true}) {
        auto [child, stop_child] = timed ? with_timeout(parent, 1000h) : with_cancel(parent);
        EXPECT_TRUE(live(parent));
        EXPECT_TRUE(live(child));
        EXPECT_EQ(child_count(parent), 1U);
        stop_child();
        EXPECT_TRUE(finished(child));
        EXPECT_TRUE(live(parent));
        EXPECT_EQ(child_count(parent), 0U);
      }
      stop_parent();
      EXPECT_TRUE(finished(parent));
    }
  });
}

TEST(Conformance, CTX_01_cancel_removes_just_one) {
  run_clean([] {
    auto [parent, cancel] = with_cancel(background());
    EXPECT_EQ(child_count(parent), 0U);
    auto [a, cancel_a] = with_cancel(parent);
    EXPECT_EQ(child_count(parent), 1U);
    cancel_a();
    EXPECT_EQ(child_count(parent), 0U);
    auto [b, cancel_b] = with_timeout(parent, 60min);
    EXPECT_EQ(child_count(parent), 1U);
    cancel_b();
    EXPECT_EQ(child_count(parent), 0U);
    const stop_fn stop = after_cancel(parent, [] {});
    EXPECT_EQ(child_count(parent), 1U);
    EXPECT_TRUE(stop());
    EXPECT_EQ(child_count(parent), 0U);
    EXPECT_TRUE(live(parent));
  });
}

// -- CTX-02, CTX-03

TEST(Conformance, CTX_02_cancel_is_synchronous) {
  run_clean([] {
    for (int round = 0; round < full_or(200, 40); ++round) {
      auto [root, cancel] = with_cancel(background());
      // Values, other timers and a detour by a stop token are no obstacle.
      const context value = with_value(root, 1, 2);
      auto [timer, cancel_timer] = with_timeout(value, 1000h);
      auto [child, cancel_child] = with_cancel(timer);
      auto [token, cancel_token] = with_cancel(background(), child.stop_token());
      auto [last, cancel_last] = with_cancel(token);
      std::vector<recv_chan<void>> all;
      for (const context& c : {root, value, timer, child, token, last}) {
        all.push_back(c.done());
        EXPECT_EQ(all.back().try_recv(), recv_status::empty);
      }
      cancel();
      for (const recv_chan<void>& c : all) EXPECT_EQ(c.try_recv(), recv_status::closed);
      for (const context& c : {root, value, timer, child, token, last})
        EXPECT_EQ(c.err(), errc::canceled);
    }
  });
}

TEST(Conformance, CTX_03_no_helper_goroutines) {
  run_clean([] {
    const std::size_t before = num_goroutines();
    std::stop_source source;
    auto [a, cancel_a] = with_cancel(background());
    auto [b, cancel_b] = with_cancel(with_value(a, 1, 2));
    auto [c, cancel_c] = with_timeout(b, 1000h);
    auto [d, cancel_d] = with_cancel(c, source.get_token());  // somebody else's notion of done
    const stop_fn stop = after_cancel(d, [] {});
    EXPECT_EQ(num_goroutines(), before);
    EXPECT_EQ(child_count(c), 1U);
    EXPECT_TRUE(stop());
    cancel_d();
    EXPECT_EQ(child_count(c), 0U);
    source.request_stop();
    EXPECT_EQ(num_goroutines(), before);
  });
}

// -- CTX-04

void deadline_test(const context& c, std::chrono::nanoseconds at_most = 5s) {
  EXPECT_EQ(c.done().recv_for(at_most), recv_status::closed);
  EXPECT_EQ(c.err(), errc::deadline_exceeded);
  EXPECT_EQ(c.err(), std::errc::timed_out);
  EXPECT_EQ(c.err().message(), too_late);
}

TEST(Conformance, CTX_04_deadlines) {
  run_clean([] {
    const auto now = [] { return clock::now(); };
    deadline_test(with_deadline(background(), now() + 1ms).first);
    deadline_test(with_value(with_deadline(background(), now() + 1ms).first, 1, 2));
    deadline_test(
        with_deadline(with_deadline(background(), now() + 1ms).first, now() + 1000h).first);
    deadline_test(with_deadline(background(), now()).first);
    deadline_test(with_deadline(background(), now() - 1ms).first);
    EXPECT_TRUE(finished(with_deadline(background(), now() - 1s).first, errc::deadline_exceeded));
    deadline_test(with_deadline(background(), std::chrono::system_clock::now() + 1ms).first);
    deadline_test(with_timeout(background(), 1ms).first);
    deadline_test(with_timeout(with_timeout(background(), 1ms).first, 1000h).first);
    deadline_test(with_timeout(background(), -1h).first);
  });
}

TEST(Conformance, CTX_04_never_early) {
  run_clean([] {
    for (int i = 0; i < 20; ++i) {
      const auto start = clock::now();
      auto [c, cancel] = with_timeout(background(), 2ms);
      ASSERT_TRUE(c.deadline());
      EXPECT_GE(*c.deadline(), start + 2ms);
      c.done().recv();
      EXPECT_GE(clock::now(), start + 2ms);
    }
  });
}

TEST(Conformance, CTX_04_the_earlier_deadline_wins) {
  run_clean([] {
    const auto now = clock::now();
    auto [outer, cancel_outer] = with_deadline(background(), now + 1h);
    auto [later, cancel_later] = with_deadline(outer, now + 2h);
    auto [sooner, cancel_sooner] = with_deadline(outer, now + 1min);
    EXPECT_EQ(later.deadline(), now + 1h);
    EXPECT_EQ(sooner.deadline(), now + 1min);
    EXPECT_EQ(with_cancel(sooner).first.deadline(), now + 1min);
    EXPECT_EQ(with_value(sooner, 1, 1).deadline(), now + 1min);
    EXPECT_FALSE(without_cancel(sooner).deadline());
  });
}

TEST(Conformance, CTX_04_an_explicit_cancel_of_a_timeout) {
  run_clean([] {
    auto [outer, cancel_outer] = with_timeout(background(), 500h);
    auto [c, cancel] = with_timeout(outer, 1000h);
    cancel();
    EXPECT_TRUE(finished(c, errc::canceled));
    EXPECT_TRUE(live(outer));
  });
}

// -- CTX-06

TEST(Conformance, CTX_06_causes) {
  struct row {
    const char* name;
    std::function<context()> make;
    int err;
    std::string cause;
  };
  const int none = 0, gone = static_cast<int>(errc::canceled),
            late = static_cast<int>(errc::deadline_exceeded);
  using pair = std::pair<context, cancel_fn>;
  const auto timed_out = [](pair p) {
    p.first.done().recv();
    return p.first;
  };
  const std::vector<row> rows = {
      {"background", [] { return background(); }, none, ""},
      {"value", [] { return with_value(background(), 1, 2); }, none, ""},
      {"cancel", [] { return with_cancel(background()).first; }, none, ""},
      {"cancelled without a cause",
       [] {
         auto [c, cancel] = with_cancel(background());
         cancel();
         return c;
       },
       gone, canceled},
      {"cancelled with one",
       [] {
         auto [c, cancel] = with_cancel(background());
         cancel(because("parent"));
         return c;
       },
       gone, "parent"},
      {"cancelled with null",
       [] {
         auto [c, cancel] = with_cancel(background());
         cancel(nullptr);
         return c;
       },
       gone, canceled},
      {"parent before child",
       [] {
         auto [p, cancel_p] = with_cancel(background());
         auto [c, cancel_c] = with_cancel(p);
         cancel_p(because("parent"));
         cancel_c(because("child"));
         return c;
       },
       gone, "parent"},
      {"parent after child",
       [] {
         auto [p, cancel_p] = with_cancel(background());
         auto [c, cancel_c] = with_cancel(p);
         cancel_c(because("child"));
         cancel_p(because("parent"));
         return c;
       },
       gone, "child"},
      {"parent without a cause before child",
       [] {
         auto [p, cancel_p] = with_cancel(background());
         auto [c, cancel_c] = with_cancel(p);
         cancel_p();
         cancel_c(because("child"));
         return c;
       },
       gone, canceled},
      {"parent without a cause after child",
       [] {
         auto [p, cancel_p] = with_cancel(background());
         auto [c, cancel_c] = with_cancel(p);
         cancel_c(because("child"));
         cancel_p();
         return c;
       },
       gone, "child"},
      {"child without a cause after parent",
       [] {
         auto [p, cancel_p] = with_cancel(background());
         auto [c, cancel_c] = with_cancel(p);
         cancel_p(because("parent"));
         cancel_c();
         return c;
       },
       gone, "parent"},
      {"child without a cause before parent",
       [] {
         auto [p, cancel_p] = with_cancel(background());
         auto [c, cancel_c] = with_cancel(p);
         cancel_c();
         cancel_p(because("parent"));
         return c;
       },
       gone, canceled},
      {"the child's does not go up",
       [] {
         auto [p, cancel_p] = with_cancel(background());
         auto [c, cancel_c] = with_cancel(p);
         cancel_c(because("child"));
         return p;
       },
       none, ""},
      {"grandchild, through a value",
       [] {
         auto [p, cancel_p] = with_cancel(background());
         auto [c, cancel_c] = with_cancel(with_value(with_cancel(p).first, 1, 2));
         cancel_p(because("parent"));
         return c;
       },
       gone, "parent"},
      {"born under a cancelled parent",
       [] {
         auto [p, cancel_p] = with_cancel(background());
         cancel_p(because("parent"));
         return with_cancel(p).first;
       },
       gone, "parent"},
      {"timeout", [&] { return timed_out(with_timeout(background(), 0s)); }, late, too_late},
      {"timeout cancelled",
       [] {
         auto [c, cancel] = with_timeout(background(), 1min);
         cancel();
         return c;
       },
       gone, canceled},
      {"timeout with a cause",
       [&] { return timed_out(with_timeout(background(), 1ms, because("too slow"))); }, late,
       "too slow"},
      {"timeout with a cause, cancelled",
       [] {
         auto [c, cancel] = with_timeout(background(), 1min, because("too slow"));
         cancel();
         return c;
       },
       gone, canceled},
      {"timeout with a cause, cancelled with another",
       [] {
         auto [c, cancel] = with_timeout(background(), 1min, because("too slow"));
         cancel(because("enough"));
         return c;
       },
       gone, "enough"},
      {"the outer timeout's cause",
       [&] {
         auto [p, cancel] = with_timeout(background(), 1ms, because("outer"));
         return timed_out(with_timeout(p, 1min, because("inner")));
       },
       late, "outer"},
      {"cancelled parent of a timeout with a cause",
       [] {
         auto [p, cancel] = with_cancel(background());
         auto [c, cancel_c] = with_timeout(p, 1min, because("too slow"));
         cancel();
         return c;
       },
       gone, canceled},
      {"without_cancel of a cancelled one",
       [] {
         auto [p, cancel] = with_cancel(background());
         const context c = without_cancel(p);
         cancel(because("parent"));
         return c;
       },
       none, ""},
      {"without_cancel of a timeout",
       [&] { return without_cancel(timed_out(with_timeout(background(), 0s))); }, none, ""},
  };
  run_clean([&] {
    for (const row& r : rows) {
      const context c = r.make();
      EXPECT_EQ(c.err().value(), r.err) << r.name;
      EXPECT_EQ(text_of(c.cause()), r.cause) << r.name;
    }
  });
}

TEST(Conformance, CTX_06_parent_cancelled_during_the_childs_creation) {
  run_clean(at_least_procs(2), [] {
    for (int i = 0; i < 100; ++i) {
      auto [parent, cancel] = with_cancel(background());
      const std::exception_ptr why = because("during");
      std::atomic<bool> go_on{false};
      scope s;
      s.go([&, cancel = cancel] {
        go_on = true;
        cancel(why);
      });
      eventually([&] { return go_on.load(); });
      auto [child, cancel_child] = with_cancel(parent);
      child.done().recv();
      EXPECT_EQ(child.err(), errc::canceled);
      EXPECT_EQ(child.cause(), why);
    }
  });
}

// -- CTX-08

TEST(Conformance, CTX_08_after_cancel_not_before_and_once_after) {
  run_clean([] {
    auto [c, cancel] = with_cancel(background());
    chan<void> called(2);
    const stop_fn stop = after_cancel(c, [=] { called.send(); });
    EXPECT_EQ(called.recv_for(5ms), recv_status::timeout);
    cancel();
    EXPECT_EQ(called.recv_for(patience), recv_status::ok);
    cancel();
    EXPECT_EQ(called.recv_for(5ms), recv_status::timeout);
    EXPECT_FALSE(stop());
  });
}

TEST(Conformance, CTX_08_after_a_timeout) {
  run_clean([] {
    chan<void> called(1);
    auto [c, cancel] = with_timeout(background(), 1ms);
    const stop_fn stop = after_cancel(c, [=] { called.send(); });
    EXPECT_EQ(called.recv_for(patience), recv_status::ok);
    // The handles are not needed for that.
    (void)after_cancel(with_timeout(background(), 1ms).first, [=] { called.send(); });
    EXPECT_EQ(called.recv_for(patience), recv_status::ok);
  });
}

TEST(Conformance, CTX_08_at_once_if_done) {
  run_clean([] {
    auto [c, cancel] = with_cancel(background());
    cancel();
    chan<void> called(1);
    const stop_fn stop = after_cancel(c, [=] { called.send(); });
    EXPECT_EQ(called.recv_for(patience), recv_status::ok);
    EXPECT_FALSE(stop());
  });
}

TEST(Conformance, CTX_08_cancel_does_not_wait_for_it) {
  run_clean([] {
    auto [c, cancel] = with_cancel(background());
    chan<void> meet;
    const stop_fn stop = after_cancel(c, [=] { meet.send(); });
    cancel();
    EXPECT_EQ(meet.recv_for(patience), recv_status::ok);
    stop.wait();
  });
}

TEST(Conformance, CTX_08_not_called_after_stop) {
  run_clean([] {
    auto [c, cancel] = with_cancel(background());
    chan<void> called(1);
    const stop_fn stop = after_cancel(c, [=] { called.send(); });
    EXPECT_TRUE(stop());
    cancel();
    EXPECT_EQ(called.recv_for(5ms), recv_status::timeout);
    EXPECT_FALSE(stop());
  });
}

// -- CTX-09

struct key1 {
  bool operator==(const key1&) const = default;
};
struct key2 {
  bool operator==(const key2&) const = default;
};

TEST(Conformance, CTX_09_values) {
  const auto check = [](const context& c, const char* v1, const char* v2, const char* v3) {
    const auto at = [&](const auto& key) {
      const auto* v = c.value<std::string>(key);
      return v != nullptr ? *v : std::string("none");
    };
    EXPECT_EQ(at(key1{}), v1);
    EXPECT_EQ(at(key2{}), v2);
    EXPECT_EQ(at(3), v3);
    EXPECT_EQ(at(4), "none");
    EXPECT_EQ(at(3U), "none");
  };
  const context c0 = background();
  check(c0, "none", "none", "none");
  const context c1 = with_value(c0, key1{}, std::string("c1k1"));
  check(c1, "c1k1", "none", "none");
  const context c2 = with_value(c1, key2{}, std::string("c2k2"));
  check(c2, "c1k1", "c2k2", "none");
  const context c3 = with_value(c2, 3, std::string("c3k3"));
  check(c3, "c1k1", "c2k2", "c3k3");
  const context c4 = with_value(c3, key1{}, nullptr);
  check(c4, "none", "c2k2", "c3k3");
  auto [c5, cancel] = with_cancel(c4);
  check(c5, "none", "c2k2", "c3k3");
  check(with_value(c5, key1{}, std::string("c6k1")), "c6k1", "c2k2", "c3k3");
  check(c3, "c1k1", "c2k2", "c3k3");
}

TEST(Conformance, CTX_09_without_cancel) {
  run_clean([] {
    const context value = with_value(background(), "key", std::string("value"));
    auto [timed, cancel] = with_timeout(value, 1h);
    const context c = without_cancel(timed);
    EXPECT_FALSE(c.deadline());
    EXPECT_TRUE(c.done() == nullptr);
    EXPECT_FALSE(c.err());
    cancel();
    EXPECT_FALSE(c.err());
    EXPECT_EQ(*c.value<std::string>("key"), "value");
  });
}

TEST(Conformance, CTX_09_nil_parents_and_keys) {
  const auto text = [](const std::function<void()>& f) -> std::string {
    try {
      f();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  const context nil;
  const std::string no_parent = "cannot create context from nil parent";
  EXPECT_EQ(text([&] { (void)with_cancel(nil); }), no_parent);
  EXPECT_EQ(text([&] { (void)with_cancel(nil, std::stop_token()); }), no_parent);
  EXPECT_EQ(text([&] { (void)with_deadline(nil, clock::now()); }), no_parent);
  EXPECT_EQ(text([&] { (void)with_timeout(nil, 1s); }), no_parent);
  EXPECT_EQ(text([&] { (void)with_value(nil, 1, 2); }), no_parent);
  EXPECT_EQ(text([&] { (void)without_cancel(nil); }), no_parent);
  EXPECT_EQ(text([&] { (void)with_value(background(), nullptr, 1); }), "nil key");
  EXPECT_EQ(text([&] { (void)with_value(background(), static_cast<key1*>(nullptr), 1); }),
            "nil key");
}

}  // namespace
}  // namespace weft::test
