// SPDX-License-Identifier: Apache-2.0
// core/status.h and the status word of a G: the table of legal edges against a list written out by
// hand, and who can change the word when.
#include "core/status.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/g.h"
#include "unit/support.h"

namespace weft::rt {
namespace {

using enum g_status;

constexpr g_status all[] = {idle, runnable,  running,   syscall, waiting,
                            dead, copystack, preempted, leaked,  deadextra};

constexpr std::pair<g_status, g_status> edges[] = {
    {idle, dead},           // carved
    {idle, deadextra},      // carved for a foreign thread
    {dead, runnable},       // spawned
    {dead, deadextra},      // lent to a foreign thread
    {runnable, running},    // picked
    {runnable, dead},       // left behind by a run
    {running, runnable},    // yielded
    {running, waiting},     // parked
    {running, syscall},     // entered a blocking call
    {running, dead},        // exited
    {running, preempted},   // stopped by signal
    {syscall, running},     // came back with its P
    {syscall, runnable},    // came back without
    {waiting, runnable},    // woken
    {waiting, leaked},      // found by the leak finder
    {waiting, copystack},   // folded away
    {copystack, waiting},   // brought back
    {preempted, runnable},  // may go on
    {preempted, waiting},   // claimed by whoever asked for the stop
    {leaked, waiting},      // reachable again
    {leaked, runnable},     // woken after all
    {deadextra, running},   // a foreign thread calls in
    {deadextra, syscall},   // borrowed, still outside
    {deadextra, dead},      // given back
};

constexpr bool listed(g_status from, g_status to) {
  return std::find(std::begin(edges), std::end(edges), std::pair(from, to)) != std::end(edges);
}

constexpr bool table_is_the_list() {
  for (g_status from : all) {
    for (g_status to : all) {
      if (legal_edge(from, to) != listed(from, to)) return false;
    }
  }
  return true;
}
static_assert(table_is_the_list());

TEST(Status, LegalEdges) {
  for (g_status from : all) {
    for (g_status to : all) {
      EXPECT_EQ(legal_edge(from, to), listed(from, to))
          << to_string(from) << " -> " << to_string(to);
    }
    EXPECT_FALSE(legal_edge(from, from)) << to_string(from);
  }
  EXPECT_FALSE(legal_edge(static_cast<g_status>(5), dead));  // no state
}

TEST(Status, EveryStateHasAnEntranceAndAnExit) {
  const auto any = [](auto f) { return std::any_of(std::begin(edges), std::end(edges), f); };
  for (g_status s : all) {
    EXPECT_TRUE(s == idle || any([s](auto e) { return e.second == s; })) << to_string(s);
    EXPECT_TRUE(any([s](auto e) { return e.first == s; })) << to_string(s);
  }
}

TEST(Status, NamesAreDifferent) {
  std::set<std::string_view> names;
  for (g_status s : all) names.insert(to_string(s));
  EXPECT_EQ(names.size(), std::size(all));
  EXPECT_EQ(names.count("???"), 0U);
  EXPECT_EQ(to_string(static_cast<g_status>(5)), "???");
}

TEST(Status, ScanBitIsOutsideOfTheStates) {
  for (g_status s : all) EXPECT_EQ(static_cast<std::uint32_t>(s) & scan_bit, 0U);
}

TEST(Status, TryStatusChangesOnlyWhatItExpects) {
  const auto g = std::make_unique<G>();
  EXPECT_EQ(g->state(), idle);
  EXPECT_FALSE(g->try_status(waiting, runnable));
  EXPECT_EQ(g->state(), idle);
  EXPECT_TRUE(g->try_status(idle, dead));
  EXPECT_EQ(g->state(), dead);
}

TEST(Status, ScanBitFreezesTheStatusAndStateSeesThroughIt) {  // G6
  const auto g = std::make_unique<G>();
  g->status.store(static_cast<std::uint16_t>(static_cast<int>(waiting) | scan_bit));
  EXPECT_EQ(g->state(), waiting);
  EXPECT_FALSE(g->try_status(waiting, runnable));
  g->status.fetch_and(static_cast<std::uint16_t>(~scan_bit));
  EXPECT_TRUE(g->try_status(waiting, runnable));
}

TEST(Status, MoveFollowsALegalLife) {
  const auto g = std::make_unique<G>();
  g_status at = idle;
  for (g_status to :
       {dead, runnable, running, waiting, runnable, running, runnable, running, dead}) {
    g->move_status(at, to);
    EXPECT_EQ(g->state(), to);
    at = to;
  }
}

TEST(Status, DevBuildsRefuseIllegalAndWrongMoves) {  // G1
  if (!unit_test::dev) GTEST_SKIP() << "checked in dev builds";
  const auto g = std::make_unique<G>();
  g->goid = 17;
  auto end = unit_test::in_child([&] { g->move_status(idle, running); });  // no such edge
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_EQ(end.err,
            "runtime: goroutine 17: status is idle, wanted idle -> running\nfatal error: bad "
            "g->status\n");
  end = unit_test::in_child(
      [&] { g->move_status(waiting, runnable); });  // an edge, but not from here
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_EQ(end.err,
            "runtime: goroutine 17: status is idle, wanted waiting -> runnable\nfatal error: bad "
            "g->status\n");
}

TEST(Status, WaitReasonsHaveNames) {
  int n = 0;
  for (std::uint8_t r = 1; to_string(static_cast<wait_reason>(r)) != "???"; ++r, ++n)
    EXPECT_FALSE(to_string(static_cast<wait_reason>(r)).empty());
  EXPECT_GE(n, 11);
  EXPECT_EQ(to_string(wait_reason::none), "");
  EXPECT_EQ(to_string(wait_reason::chan_receive), "chan receive");
}

}  // namespace
}  // namespace weft::rt
