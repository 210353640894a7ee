// SPDX-License-Identifier: Apache-2.0
// Each numbered invariant is broken on purpose, in the real state of a real world, and audit must
// name it; mended again, audit must find nothing. The sabotage runs inside audit, with the world
// stopped.
#include "debug/audit.h"

#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "sched/sched.h"
#include "support/chaos.h"
#include "weft/detail/event.hpp"
#include "weft/weft.hpp"

namespace weft::rt {
namespace {

struct deed {
  std::function<void()> break_it, mend_it;
};

std::string audit_says(audit_phase when, deed d, int* broken) {
  ::testing::internal::CaptureStderr();
  *broken = run_audit({when, [](void* p) { static_cast<deed*>(p)->break_it(); },
                       [](void* p) { static_cast<deed*>(p)->mend_it(); }, &d});
  return ::testing::internal::GetCapturedStderr();
}

// A world at one P with main running, one goroutine parked, three runnable (runnext and two in the
// ring), and a dead P.
template <class F>
void in_a_world(F f) {
  const test::order_matters here("who lies where");
  config c;
  c.procs = 2;
  c.quantum = std::chrono::minutes(10);  // or the three would have run by the time of some audit
  run(c, [&] {
    set_procs(1);
    detail::event gate;
    G* parked = nullptr;
    scope s;
    s.go([&] {
      parked = current_g();
      gate.wait();
    });
    while (parked == nullptr || parked->state() != g_status::waiting) yield();
    for (int i = 0; i < 3; ++i) s.go([] {});
    M* m = current_m();
    ASSERT_EQ(m->p->rq.size(), 2u);
    ASSERT_NE(m->p->rq.runnext.load(), nullptr);
    f(parked, m, m->p);
    EXPECT_EQ(debug::audit(), 0);
    gate.set();
    s.wait();
  });
}

void expect_named(const char* rule, deed d, audit_phase when = audit_phase::stopped) {
  int broken = 0;
  const std::string said = audit_says(when, std::move(d), &broken);
  EXPECT_GE(broken, 1) << rule;
  EXPECT_NE(said.find(std::string("audit: ") + rule + " broken: "), std::string::npos)
      << rule << " was not named; audit said:\n"
      << said;
}

template <class T, class V>
deed change(T& field, V to) {
  auto old = field;
  return {[&field, to] { field = to; }, [&field, old] { field = old; }};
}
template <class T>
deed change(atomic<T>& field, T to) {
  const T old = field.load();
  return {[&field, to] { field.store(to); }, [&field, old] { field.store(old); }};
}

TEST(Audit, SoundWorldHasNothingBroken) {
  in_a_world([](G*, M*, P*) { EXPECT_EQ(debug::audit(), 0); });
  EXPECT_EQ(debug::audit(), 0);  // no world at all
}

TEST(Audit, NamesBrokenGoroutineRules) {
  in_a_world([](G* g, M* m, P* p) {
    expect_named("G1", change(g->status, std::uint16_t{77}));
    expect_named("G2", change(g->m, m));
    expect_named("G2", change(m->curg->m, static_cast<M*>(nullptr)));
    expect_named("G3", change(p->rq.runnext, static_cast<G*>(nullptr)));
    expect_named("G3", change(g->status, static_cast<std::uint16_t>(g_status::runnable)));
    expect_named("G4", change(g->waiting_on, static_cast<const void*>(nullptr)));
    expect_named("G5", {[] { sched.free_gs.lock.lock(); }, [] { sched.free_gs.lock.unlock(); }},
                 audit_phase::locks);
    expect_named("G6", change(g->status, static_cast<std::uint16_t>(
                                             static_cast<int>(g_status::waiting) | scan_bit)));
  });
}

TEST(Audit, NamesBrokenThreadRules) {
  in_a_world([](G* g, M* m, P*) {
    M* other = sched.allm.load();
    while (other != nullptr && other->p != nullptr) other = other->all_next;
    ASSERT_NE(other, nullptr);
    // Under the lock, and relative: Ms come and go.
    expect_named("M1", {[] { ++sched.nmidle; }, [] { --sched.nmidle; }}, audit_phase::idle_lists);
    expect_named("M2", change(other->spinning, true));
    expect_named("M3", change(m->spinning, true));
    expect_named("M4", {[g] { g->status.store(static_cast<std::uint16_t>(g_status::syscall)); },
                        [g] { g->status.store(static_cast<std::uint16_t>(g_status::waiting)); }});
    expect_named("M5", change(m->hold, hold_state::detached));
    expect_named("M6", {[g, m] { g->tied.set(m); }, [g] { g->tied.clear(); }});
    expect_named("M6", change(m->locked_g, g));
    expect_named("M7", {[] {
                          for (int i = 0; i < 3; ++i) sched.idle.try_start_spinning(100);
                        },
                        [] {
                          for (int i = 0; i < 3; ++i) sched.idle.stop_spinning();
                        }});
  });
}

TEST(Audit, NamesBrokenProcessorRules) {
  in_a_world([](G*, M* m, P* p) {
    M* other = sched.allm.load();
    while (other == m) other = other->all_next;
    P* dead = p_at(1);
    expect_named("P1", change(p->m, other));
    expect_named("P3", change(p->status, static_cast<p_status>(2)));
    expect_named("P4", change(p->status, p_status::running));
    expect_named("P5", change(dead->rq.runnext, m->curg));
    expect_named("P5", change(dead->status, p_status::idle));
  });
}

TEST(Audit, NamesBrokenIdleLists) {
  config c;
  c.procs = 3;
  run(c, [] {
    // With nothing to do at least one P goes idle; which is the promise of STL-07, so waiting for
    // it ends.
    while (sched.idle.load().idle_ps == 0) yield();
    P* idle = nullptr;
    const auto find = [&idle] { idle = sched.idle_p_list; };
    int broken = 0;
    const std::string said = audit_says(audit_phase::idle_lists,
                                        {[&] {
                                           find();
                                           if (idle != nullptr)
                                             idle->status.store(p_status::running);
                                         },
                                         [&] {
                                           if (idle != nullptr) idle->status.store(p_status::idle);
                                         }},
                                        &broken);
    ASSERT_NE(idle, nullptr);
    EXPECT_NE(said.find("audit: P2 broken: "), std::string::npos) << said;
    expect_named("P6",
                 {[] { sched.idle_mask[5].fetch_xor(1); }, [] { sched.idle_mask[5].fetch_xor(1); }},
                 audit_phase::idle_lists);
    EXPECT_EQ(debug::audit(), 0);
  });
}

TEST(Audit, NamesBrokenQueueRules) {
  in_a_world([](G* g, M*, P* p) {
    runq& q = p->rq;
    const std::uint32_t h = q.head.load(), t = q.tail.load();
    auto& beyond = q.slots[t % runq::capacity];
    auto& before = q.slots[(h - 1) % runq::capacity];
    auto& first = q.slots[h % runq::capacity];
    G* const kept_beyond = beyond.load();
    G* const kept_before = before.load();
    expect_named("R1", change(q.tail, t + 300));
    expect_named("R2", {[&] { beyond.store(g), q.tail.store(t + 1); },
                        [&] { q.tail.store(t), beyond.store(kept_beyond); }});
    expect_named("R3", {[&] { before.store(g), q.head.store(h - 1); },
                        [&] { q.head.store(h), before.store(kept_before); }});
    expect_named("R4", change(first, static_cast<G*>(nullptr)));
    expect_named("R5", change(q.runnext, first.load()));
    expect_named("R6", change(sched.overflowed, sched.overflowed + 1));
    expect_named("R7", {[&] { sched.runq.push(g); },
                        [&] {
                          G* out = nullptr;
                          sched.runq.pop(&out, 1);
                        }});
  });
}

}  // namespace
}  // namespace weft::rt
