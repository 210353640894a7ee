// SPDX-License-Identifier: Apache-2.0
// Unwinding from inside a goroutine: it ends at weft_entry, without falling off the end.
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <unwind.h>
#include <vector>

#include "context/context.h"
#include "unit/sched/support.h"

namespace weft {
namespace {

using sched_test::run_on;

struct trace {
  std::vector<std::uintptr_t> functions;  // where each frame's function begins, innermost first
  std::vector<std::uintptr_t> frames;     // the CFA of each
  _Unwind_Reason_Code end = _URC_NO_REASON;
};

_Unwind_Reason_Code note_frame(_Unwind_Context* c, void* arg) {
  auto* t = static_cast<trace*>(arg);
  int before = 0;
  if (_Unwind_GetIP(c) == 0) return _URC_NO_REASON;  // libgcc's way to say that this is the end
  const std::uintptr_t ip = _Unwind_GetIPInfo(c, &before) - (before == 0 ? 1 : 0);
  t->functions.push_back(
      reinterpret_cast<std::uintptr_t>(_Unwind_FindEnclosingFunction(reinterpret_cast<void*>(ip))));
  t->frames.push_back(_Unwind_GetCFA(c));
  return t->functions.size() < 1000 ? _URC_NO_REASON : _URC_NORMAL_STOP;
}

__attribute__((noinline)) void take_trace(trace& t) { t.end = _Unwind_Backtrace(note_frame, &t); }

__attribute__((noinline)) void take_trace_deep(trace& t, int depth) {
  if (depth == 0) {
    take_trace(t);
  } else {
    take_trace_deep(t, depth - 1);
  }
  asm volatile("" ::: "memory");  // no tail call
}

void expect_whole(const trace& t, std::size_t at_least) {
  EXPECT_EQ(t.end, _URC_END_OF_STACK);
  ASSERT_GE(t.functions.size(), at_least);
  ASSERT_LT(t.functions.size(), 1000U) << "the unwinder did not stop";
  // Its unwind information may begin a little before its label.
  EXPECT_LE(reinterpret_cast<std::uintptr_t>(&weft_entry) - t.functions.back(), 8U);
  for (std::size_t i = 1; i < t.frames.size(); ++i)
    EXPECT_GE(t.frames[i], t.frames[i - 1]) << "frame " << i;
}

TEST(Unwind, EndsAtTheEntryOfAGoroutine) {
  run_on(1, [] {
    trace t;
    weft::async([&t] { take_trace(t); }).get();
    expect_whole(t, 3);
  });
}

TEST(Unwind, EndsAtTheEntryOfMain) {
  trace t;
  run_on(1, [&t] { take_trace_deep(t, 20); });
  expect_whole(t, 22);
}

TEST(Unwind, EndsThereAfterASwitchAndFromADeepCall) {
  run_on(2, [] {
    trace t;
    auto task = weft::async([&t] {
      for (int i = 0; i < 100; ++i) weft::yield();
      take_trace_deep(t, 50);
    });
    while (!task.done()) weft::yield();
    task.get();
    expect_whole(t, 52);
  });
}

}  // namespace
}  // namespace weft
