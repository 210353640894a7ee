// SPDX-License-Identifier: Apache-2.0
// Which slot a wanted size gets. Pure arithmetic, nothing is reserved.
#include "stack/size_class.h"

#include <gtest/gtest.h>
#include <set>

namespace weft::rt {
namespace {

TEST(StackSize, UpTo256KiBTheGuardIsInside) {
  EXPECT_EQ(stack_slot_size(256 * kib), 256 * kib);
  EXPECT_EQ(stack_slot_size(192 * kib), 192 * kib);
  EXPECT_EQ(stack_slot_size(128 * kib), 128 * kib);
  for (std::size_t w = 129 * kib; w <= 256 * kib; w += 1111) {
    const std::size_t slot = stack_slot_size(w);
    EXPECT_GE(slot, w);
    EXPECT_LT(slot, w + page_size());
    EXPECT_EQ(slot % page_size(), 0U);
  }
}

TEST(StackSize, AtLeast64KiBAreUsable) {
  for (std::size_t w : {std::size_t{0}, std::size_t{1}, 4 * kib, 64 * kib, 127 * kib}) {
    EXPECT_EQ(stack_slot_size(w), 128 * kib) << w;
  }
}

TEST(StackSize, AboveTheGuardComesOnTop) {
  EXPECT_EQ(stack_slot_size(512 * kib), 512 * kib + guard_size);
  EXPECT_EQ(stack_slot_size(mib), mib + guard_size);
  EXPECT_EQ(stack_slot_size(8 * mib), 8 * mib + guard_size);
  EXPECT_EQ(stack_slot_size(max_usable), max_usable + guard_size);
}

TEST(StackSize, AtMostAQuarterIsWasted) {
  for (std::size_t w = 256 * kib + 1; w < max_usable; w += w / 13 + 1) {
    const std::size_t usable = stack_slot_size(w) - guard_size;
    EXPECT_GE(usable, w);
    EXPECT_LE(usable - w, w / 4) << w;
    EXPECT_EQ(usable % (64 * kib), 0U);  // whole pages, however large a page is
  }
}

TEST(StackSize, AbsurdSizesAreRefused) {
  EXPECT_EQ(stack_slot_size(max_usable + 1), 0U);
  EXPECT_EQ(stack_slot_size(~std::size_t{0}), 0U);
  EXPECT_EQ(stack_slot_size(~std::size_t{0} - guard_size), 0U);
}

TEST(StackSize, EverySlotSizeHasAPoolOfItsOwn) {
  std::set<std::size_t> slots;
  for (std::size_t w = 0; w <= 256 * kib; w += page_size()) slots.insert(stack_slot_size(w));
  for (std::size_t w = 256 * kib + 1; w <= max_usable; w += w / 64)
    slots.insert(stack_slot_size(w));
  slots.insert(stack_slot_size(max_usable));
  std::set<std::size_t> classes;
  for (std::size_t slot : slots) {
    const std::size_t c = class_of(slot);
    ASSERT_LT(c, class_count) << slot;
    EXPECT_TRUE(classes.insert(c).second) << slot;
  }
}

TEST(StackSize, OnlySlotSizesHaveAPool) {
  for (std::size_t s :
       {std::size_t{0}, std::size_t{1}, 64 * kib, 256 * kib + 1, 257 * kib, 300 * kib, 320 * kib,
        mib, 8 * mib, max_usable, max_usable + 2 * guard_size, ~std::size_t{0}}) {
    EXPECT_EQ(class_of(s), no_class) << s;
  }
}

TEST(StackSize, AChunkHolds64MiBAndFewerSlotsForLargeOnes) {
  EXPECT_EQ(slots_per_chunk(256 * kib), 256U);
  EXPECT_EQ(slots_per_chunk(128 * kib), 512U);
  EXPECT_EQ(slots_per_chunk(mib + guard_size), 60U);
  EXPECT_EQ(slots_per_chunk(4 * mib + guard_size), 3U);
  EXPECT_EQ(slots_per_chunk(8 * mib + guard_size), 1U);
  EXPECT_TRUE(is_huge(8 * mib + guard_size));
}

}  // namespace
}  // namespace weft::rt
