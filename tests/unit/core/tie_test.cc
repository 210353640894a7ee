// SPDX-License-Identifier: Apache-2.0
// What a bound goroutine is tied to, in one word; and what of a G shares a byte.
#include <gtest/gtest.h>

#include "core/g.h"
#include "core/m.h"
#include "sched/bubble.h"

namespace weft::rt {
namespace {

TEST(Tie, IsToAThreadOrToABubble) {
  static M m;
  static bubble b;
  tie t;
  EXPECT_EQ(t.locked_m(), nullptr);
  EXPECT_EQ(t.its_bubble(), nullptr);
  t.set(&m);
  EXPECT_EQ(t.locked_m(), &m);
  EXPECT_EQ(t.its_bubble(), nullptr);
  t.set(&b);
  EXPECT_EQ(t.locked_m(), nullptr);
  EXPECT_EQ(t.its_bubble(), &b);
  t.clear();
  EXPECT_EQ(t.locked_m(), nullptr);
  EXPECT_EQ(t.its_bubble(), nullptr);
}

TEST(Tie, GoexitAndBubblesShareAWordWithoutMeeting) {
  static G g;
  EXPECT_FALSE(g.wants_attention());
  for (const exit_state s : {exit_state::begun, exit_state::put_off, exit_state::none}) {
    for (const bool member : {true, false}) {
      g.set_bubbled(member);
      g.set_exiting(s);
      EXPECT_EQ(g.exiting(), s);
      EXPECT_EQ(g.bubbled(), member);
      EXPECT_EQ(g.wants_attention(), member || s != exit_state::none);
      g.set_bubbled(!member);
      EXPECT_EQ(g.exiting(), s);
      g.set_bubbled(false);
    }
  }
}

}  // namespace
}  // namespace weft::rt
