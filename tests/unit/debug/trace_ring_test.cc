// SPDX-License-Identifier: Apache-2.0
// The ring of a trace when there is no room in it.
#include "trace/ring.h"

#include <gtest/gtest.h>
#include <utility>

namespace weft::rt {
namespace {

// One word with a stamp, as the scheduler puts it; false: there was no room.
bool put(trace_ring& r) {
  std::uint64_t* to = trace_reserve(r, 1, false);
  if (to == nullptr) return false;
  r.last = trace_stamp(r.last);
  to[0] = r.last << 8 | static_cast<std::uint64_t>(trace_kind::g_run);
  trace_commit(r, 1);
  return true;
}

std::uint64_t stamp_of(std::uint64_t word) { return word >> 8; }

class TraceRing : public ::testing::Test {
 protected:
  void SetUp() override {
    most_before = std::exchange(traces.max_chunks, traces.chunks + 16);
    traces.full = false;
    base_before = std::exchange(traces.base, trace_clock());  // a record has 56 bits of a stamp
  }
  void TearDown() override {
    traces.base = base_before;
    traces.lock.lock();
    trace_reset(ring);
    traces.lock.unlock();
    traces.max_chunks = most_before;
    traces.full = false;
  }
  void fill() {
    while (put(ring)) {
    }
    ring.lost = 0;  // that one
  }
  void read_one_chunk() {
    trace_chunk* c = ring.head.load();
    ring.head.store(c->next.load());
    trace_give_back(c);
  }

  trace_ring ring;
  std::size_t most_before = 0;
  std::uint64_t base_before = 0;
};

TEST_F(TraceRing, ALossIsRecordedWhenThereIsRoomAgain) {
  fill();
  const std::uint64_t last = ring.last;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(trace_reserve(ring, 1, false), nullptr);
    ring.last = trace_stamp(ring.last);  // what is lost has its time
  }
  read_one_chunk();
  ASSERT_TRUE(put(ring));
  const std::uint64_t* w = ring.tail->words;
  EXPECT_EQ(w[0] & 0xff, static_cast<std::uint64_t>(trace_kind::lost));
  EXPECT_EQ(w[1], 3U);
  EXPECT_EQ(w[2], last);
  EXPECT_GT(stamp_of(w[0]), last);
  EXPECT_GT(stamp_of(w[3]), stamp_of(w[0]));
}

}  // namespace
}  // namespace weft::rt
