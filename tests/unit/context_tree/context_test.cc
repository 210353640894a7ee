// SPDX-License-Identifier: Apache-2.0
// The tree of contexts: handles, done, values, causes, who wins, what is left.
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "context_tree/tree_testing.h"
#include "context_tree/watch.h"
#include "unit/sched/support.h"
#include "weft/context.hpp"
#include "weft/select.hpp"

namespace weft {
namespace {

using namespace sched_test;
using detail::child_count;

class Context : public GoTest {};

bool is_done(const context& c) {
  const bool closed = c.done().closed();
  EXPECT_EQ(closed, c.err() != std::error_code());
  return closed;
}

std::string text_of(const std::exception_ptr& e) {
  if (!e) return "";
  return thrown_by<std::exception>([&] { std::rethrow_exception(e); });
}

std::exception_ptr because(const char* why) {
  return std::make_exception_ptr(std::runtime_error(why));
}

TEST_F(Context, NilIsNoParent) {
  const context nil;
  EXPECT_FALSE(nil);
  EXPECT_TRUE(nil.done() == nullptr);
  EXPECT_FALSE(nil.err());
  EXPECT_EQ(nil.cause(), nullptr);
  EXPECT_FALSE(nil.deadline());
  EXPECT_EQ(nil.value<int>(1), nullptr);
  EXPECT_FALSE(nil.stop_token().stop_possible());
  const char* text = "cannot create context from nil parent";
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { (void)with_cancel(nil); }), text);
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { (void)with_value(nil, 1, 2); }), text);
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { (void)without_cancel(nil); }), text);
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { (void)after_cancel(nil, [] {}); }), text);
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { scope s(nil); }), text);
}

TEST_F(Context, BackgroundIsNeverDone) {
  const context bg = background();
  EXPECT_TRUE(bg);
  EXPECT_EQ(bg, background());
  EXPECT_TRUE(bg.done() == nullptr);
  EXPECT_FALSE(bg.err());
  EXPECT_EQ(bg.cause(), nullptr);
  EXPECT_FALSE(bg.deadline());
  EXPECT_FALSE(bg.stop_token().stop_possible());
}

TEST_F(Context, HandlesAreShared) {
  auto [a, cancel] = with_cancel(background());
  const context b = a;
  EXPECT_EQ(a, b);
  context moved = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): moved from is nil
  EXPECT_EQ(moved, b);
  std::unordered_set<context> set{moved, b, background()};
  EXPECT_EQ(set.size(), 2U);
  moved = background();
  const cancel_fn copy = cancel;
  copy();
  EXPECT_TRUE(is_done(b));
  cancel_fn nothing;
  nothing();
  EXPECT_FALSE(nothing);
}

TEST_F(Context, DoneIsOneChannel) {
  auto [ctx, cancel] = with_cancel(background());
  const recv_chan<void> before = ctx.done();
  EXPECT_EQ(before, ctx.done());
  EXPECT_FALSE(before.closed());
  cancel();
  EXPECT_EQ(before, ctx.done());
  EXPECT_TRUE(before.closed());
  EXPECT_FALSE(before.recv());
  auto [late, cancel_late] = with_cancel(background());
  cancel_late();
  EXPECT_TRUE(late.done().closed());
  EXPECT_EQ(late.done(), late.done());
}

TEST_F(Context, DoneOutlivesTheContext) {
  recv_chan<void> done;
  {
    auto [ctx, cancel] = with_cancel(background());
    done = ctx.done();
    cancel();
  }
  EXPECT_TRUE(done.closed());
  {
    auto [ctx, cancel] = with_cancel(background());
    done = ctx.done();
  }
  EXPECT_FALSE(done.closed());  // dropping cancels nothing
}

// As in Go, where its parent holds it.
TEST_F(Context, DoneIsEnoughToBeToldFromAbove) {
  auto [root, cancel] = with_cancel(background());
  const recv_chan<void> child = with_cancel(root).first.done();
  const recv_chan<void> value = with_value(with_cancel(root).first, 1, 1).done();
  const recv_chan<void> deep = with_cancel(with_cancel(with_cancel(root).first).first).first.done();
  const std::stop_token token = with_cancel(with_cancel(root).first).first.stop_token();
  EXPECT_EQ(child_count(root), 4U);
  int asked = 0;
  const std::stop_callback ask(token, [&, root = root] { asked += root.err() ? 1 : 0; });
  EXPECT_FALSE(child.closed());
  EXPECT_FALSE(token.stop_requested());
  cancel();
  for (const recv_chan<void>& c : {child, value, deep}) EXPECT_TRUE(c.closed());
  EXPECT_TRUE(token.stop_requested());
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(child_count(root), 0U);
}

// Nobody can cancel them any more: they are as if they had never been handed out.
TEST_F(Context, DoneIsNothingWithoutAnybodyAbove) {
  recv_chan<void> done;
  std::stop_token token;
  {
    auto [root, cancel] = with_cancel(background());
    const context child = with_cancel(root).first;
    done = with_cancel(child).first.done();
    token = with_cancel(child).first.stop_token();
    EXPECT_EQ(child_count(child), 2U);
  }
  EXPECT_FALSE(done.closed());
  EXPECT_FALSE(token.stop_possible());
}

// A parent that lives long keeps no more of those that nobody waits for than of the others.
TEST_F(Context, AParentForgetsWhomNobodyWaitsFor) {
  auto [root, cancel] = with_cancel(background());
  for (int i = 0; i < 10'000; ++i) {
    recv_chan<void> last;
    {
      const context child = with_cancel(root).first;
      last = child.done();
      EXPECT_FALSE(last.closed());
    }
    ASSERT_LE(child_count(root), 32U);
  }
  std::vector<recv_chan<void>> kept;
  for (int i = 0; i < 1000; ++i) {
    kept.push_back(with_cancel(root).first.done());
    recv_chan<void> last = with_cancel(root).first.done();
    ASSERT_LE(child_count(root), 4 * kept.size() + 32U);
  }
  for (int i = 0; i < 1000; ++i) {  // these are forgotten at once
    auto [child, cancel_child] = with_cancel(root);
    EXPECT_EQ(weft::select(weft::recv(child.done()), weft::otherwise()), 1);
  }
  EXPECT_LE(child_count(root), 4 * kept.size() + 32U);
  cancel();
  for (const recv_chan<void>& c : kept) ASSERT_TRUE(c.closed());
}

// The last handle of a child goes while its parent is cancelled, or goes too.
TEST_F(Context, TheLastHandleRacesTheCancellationAbove) {
  run_on_each([] {
    for (int i = 0; i < scaled(2000); ++i) {
      auto [root, cancel] = with_cancel(background());
      context middle = with_cancel(root).first;
      context child = i % 3 == 0   ? with_timeout(middle, std::chrono::hours(1)).first
                      : i % 3 == 1 ? with_cancel(middle).first
                                   : with_cancel(middle, std::stop_source().get_token()).first;
      const recv_chan<void> done = child.done();
      const std::stop_token token = child.stop_token();
      scope s;
      s.go([cancel = cancel] { cancel(); });
      s.go([middle = std::move(middle)]() mutable { middle = context(); });
      s.go([child = std::move(child)]() mutable { child = context(); });
      if (i % 2 == 0) done.recv();
      s.wait();
      ASSERT_TRUE(done.closed());
      ASSERT_TRUE(token.stop_requested());
    }
  });
}

TEST_F(Context, TheFirstOneWins) {
  auto [ctx, cancel] = with_cancel(background());
  EXPECT_EQ(ctx.cause(), nullptr);
  cancel(because("first"));
  cancel(because("second"));
  cancel();
  EXPECT_EQ(ctx.err(), errc::canceled);
  EXPECT_EQ(text_of(ctx.cause()), "first");
  auto [plain, cancel_plain] = with_cancel(background());
  cancel_plain();
  EXPECT_EQ(text_of(plain.cause()), "context canceled");
  EXPECT_THROW(std::rethrow_exception(plain.cause()), std::system_error);
}

// Where none was given it is the error, and always the same one, as Go's context.Canceled is.
TEST_F(Context, ThePlainCauseIsOne) {
  auto [a, cancel_a] = with_cancel(background());
  auto [b, cancel_b] = with_cancel(background());
  auto [late, cancel_late] = with_timeout(background(), std::chrono::seconds(0));
  cancel_a();
  cancel_b();
  EXPECT_EQ(a.cause(), a.cause());
  EXPECT_EQ(a.cause(), b.cause());
  EXPECT_EQ(a.cause(), with_cancel(a).first.cause());
  EXPECT_EQ(late.cause(), late.cause());
  EXPECT_NE(late.cause(), a.cause());
  EXPECT_EQ(text_of(a.cause()), "context canceled");
  EXPECT_EQ(text_of(late.cause()), "context deadline exceeded");
}

TEST_F(Context, ChildrenAreUnlinkedWhenTheyGo) {
  auto [parent, cancel] = with_cancel(background());
  {
    auto [a, cancel_a] = with_cancel(parent);
    auto [b, cancel_b] = with_cancel(parent);
    const context v = with_value(parent, 1, 2);  // no child of its own
    EXPECT_EQ(child_count(parent), 2U);
    EXPECT_EQ(child_count(v), 2U);
    {
      auto [c, cancel_c] = with_cancel(v);
      EXPECT_EQ(child_count(parent), 3U);
    }
    EXPECT_EQ(child_count(parent), 2U);
    cancel_a();
    EXPECT_EQ(child_count(parent), 1U);
    EXPECT_FALSE(is_done(b));
  }
  EXPECT_EQ(child_count(parent), 0U);
  EXPECT_FALSE(is_done(parent));
}

TEST_F(Context, AChildHoldsItsParent) {
  cancel_fn cancel_root;
  context leaf;
  {
    auto [root, c] = with_cancel(background());
    cancel_root = c;
    leaf = with_cancel(with_value(with_cancel(root).first, 1, std::string("one"))).first;
  }
  EXPECT_EQ(*leaf.value<std::string>(1), "one");
  cancel_root();
  EXPECT_TRUE(is_done(leaf));
}

TEST_F(Context, DeepTreesNeitherRecurseToCancelNorToGo) {
  run_on(1, [] {  // on a goroutine's stack
    constexpr int depth = 100'000;
    for (const bool cancelled : {true, false}) {
      auto [root, cancel] = with_cancel(background());
      context leaf = root;
      for (int i = 0; i < depth; ++i) leaf = with_cancel(leaf).first;
      EXPECT_FALSE(is_done(leaf));
      if (cancelled) {
        cancel();
        EXPECT_TRUE(is_done(leaf));
      }
    }
  });
}

TEST_F(Context, WideTrees) {
  auto [root, cancel] = with_cancel(background());
  std::vector<context> all;
  for (int i = 0; i < 1000; ++i) {
    all.push_back(with_cancel(root).first);
    for (int k = 0; k < 3; ++k) all.push_back(with_cancel(all.back()).first);
  }
  EXPECT_EQ(child_count(root), 1000U);
  cancel(because("storm"));
  EXPECT_EQ(child_count(root), 0U);
  for (const context& c : all) {
    ASSERT_TRUE(is_done(c));
    ASSERT_EQ(text_of(c.cause()), "storm");
  }
}

TEST_F(Context, BornUnderACancelledParent) {
  auto [parent, cancel] = with_cancel(background());
  cancel(because("before"));
  auto [child, cancel_child] = with_cancel(with_value(parent, 1, 1));
  EXPECT_TRUE(is_done(child));
  cancel_child(because("after"));
  EXPECT_EQ(text_of(child.cause()), "before");
  EXPECT_EQ(child_count(parent), 0U);
}

// -- values

struct user_key {
  int id = 0;
  bool operator==(const user_key&) const = default;
};
struct other_key {
  int id = 0;
  bool operator==(const other_key&) const = default;
};
enum class color { red, green };

TEST_F(Context, ValuesAreFoundByTypeAndEquality) {
  context c = with_value(background(), user_key{1}, std::string("one"));
  c = with_value(c, user_key{2}, std::string("two"));
  c = with_value(c, other_key{1}, 11);
  c = with_value(c, color::red, 3.5);
  c = with_value(c, 7, 'x');
  EXPECT_EQ(*c.value<std::string>(user_key{1}), "one");
  EXPECT_EQ(*c.value<std::string>(user_key{2}), "two");
  EXPECT_EQ(c.value<std::string>(user_key{3}), nullptr);
  EXPECT_EQ(*c.value<int>(other_key{1}), 11);
  EXPECT_EQ(*c.value<double>(color::red), 3.5);
  EXPECT_EQ(c.value<double>(color::green), nullptr);
  EXPECT_EQ(*c.value<char>(7), 'x');
  EXPECT_EQ(*c.value<const char>(7), 'x');
  EXPECT_EQ(c.value<char>(7L), nullptr);  // another type
  EXPECT_EQ(c.value<int>(user_key{1}), nullptr);
}

TEST_F(Context, InnerValuesHideOuterOnes) {
  const context outer = with_value(background(), user_key{}, 1);
  EXPECT_EQ(*with_value(outer, user_key{}, 2).value<int>(user_key{}), 2);
  const context other_type = with_value(outer, user_key{}, std::string("s"));
  EXPECT_EQ(other_type.value<int>(user_key{}), nullptr);
  const context nil = with_value(outer, user_key{}, nullptr);
  EXPECT_EQ(nil.value<int>(user_key{}), nullptr);
  EXPECT_EQ(nil.value<std::nullptr_t>(user_key{}), nullptr);
  EXPECT_EQ(*outer.value<int>(user_key{}), 1);
}

TEST_F(Context, StringsAreOneKeyType) {
  char name[] = "name";  // another address than the literal's
  const context c = with_value(background(), "name", 1);
  EXPECT_EQ(*c.value<int>(name), 1);
  EXPECT_EQ(*c.value<int>(std::string("name")), 1);
  EXPECT_EQ(*c.value<int>(std::string_view("name!", 4)), 1);
  EXPECT_EQ(c.value<int>("other"), nullptr);
  EXPECT_EQ(*with_value(c, std::string("name"), 2).value<int>("name"), 2);
}

TEST_F(Context, PointerKeys) {
  int a = 0, b = 0;
  const context c = with_value(background(), &a, 1);
  EXPECT_EQ(*c.value<int>(&a), 1);
  EXPECT_EQ(c.value<int>(&b), nullptr);
  const auto nil_key = [](auto key) {
    return thrown_by<std::invalid_argument>([&] { (void)with_value(background(), key, 1); });
  };
  EXPECT_EQ(nil_key(nullptr), "nil key");
  EXPECT_EQ(nil_key(static_cast<int*>(nullptr)), "nil key");
  EXPECT_EQ(nil_key(static_cast<const char*>(nullptr)), "nil key");
}

TEST_F(Context, ValuesGoWithTheLastContext) {
  context kept;
  {
    const context c = with_value(background(), 1, counted(5));
    EXPECT_EQ(counted::alive, 1);
    kept = with_value(c, 2, 0);
  }
  EXPECT_EQ(counted::alive, 1);
  EXPECT_EQ(kept.value<counted>(1)->value, 5);
  kept = context();
  EXPECT_EQ(counted::alive, 0);
  const context moved_in = with_value(background(), 1, std::make_unique<int>(4));
  EXPECT_EQ(**moved_in.value<std::unique_ptr<int>>(1), 4);
  counted::copies_until_throw = 0;
  const counted refuses(1);
  EXPECT_EQ(thrown_by([&] { (void)with_value(kept ? kept : background(), 1, refuses); }),
            "copy refused");
}

TEST_F(Context, WithoutCancelKeepsValuesOnly) {
  auto [parent, cancel] = with_cancel(with_value(background(), 1, 10));
  const context c = without_cancel(parent);
  auto [below, cancel_below] = with_cancel(c);
  cancel();
  EXPECT_FALSE(c.err());
  EXPECT_TRUE(c.done() == nullptr);
  EXPECT_EQ(c.cause(), nullptr);
  EXPECT_EQ(*c.value<int>(1), 10);
  EXPECT_FALSE(is_done(below));
  cancel_below();
  EXPECT_TRUE(is_done(below));
}

// -- waking

TEST_F(Context, WakesGoroutinesAndThreads) {
  run_on_each([] {
    for (int round = 0; round < scaled(50); ++round) {
      auto [ctx, cancel] = with_cancel(background());
      std::atomic<int> through{0};
      std::thread t([&, ctx = ctx] {
        ctx.done().recv();
        ++through;
      });
      {
        scope s;
        for (int i = 0; i < 10; ++i) {
          s.go([&, child = with_cancel(ctx).first] {
            chan<int> never;
            weft::select(weft::recv(child.done()), weft::recv(never));
            EXPECT_EQ(child.err(), errc::canceled);
            ++through;
          });
        }
        if (round % 2 == 0) weft::yield();
        cancel();
      }
      t.join();
      ASSERT_EQ(through, 11);
    }
  });
}

TEST_F(Context, FromAThreadBesideARun) {
  run_on(2, [] {
    auto [ctx, cancel] = with_cancel(background());
    std::thread t([cancel = cancel] { cancel(); });
    ctx.done().recv();
    t.join();
    EXPECT_EQ(ctx.err(), errc::canceled);
  });
}

// Whoever finds a context done finds all below it done.
TEST_F(Context, DoneMeansAllBelowAreDone) {
  for (int round = 0; round < scaled(500); ++round) {
    auto [root, cancel] = with_cancel(background());
    std::array<context, 4> chain;
    chain[0] = root;
    for (std::size_t i = 1; i < chain.size(); ++i) chain[i] = with_cancel(chain[i - 1]).first;
    std::thread watcher([&] {
      while (!chain[0].err()) {
      }
      for (const context& c : chain) EXPECT_TRUE(c.err());
    });
    std::thread second([&, cancel = cancel] {
      cancel();
      for (const context& c : chain) EXPECT_TRUE(c.done().closed());
    });
    cancel();
    for (const context& c : chain) EXPECT_TRUE(c.done().closed());
    watcher.join();
    second.join();
  }
}

// The other way round, as in Go: whoever finds a context done finds those above it done.
TEST_F(Context, DoneMeansThoseAboveAreDone) {
  run_on_each([] {
    for (int round = 0; round < scaled(2000); ++round) {
      auto [root, cancel] = with_cancel(background());
      const context middle = with_cancel(root).first;
      const context leaf = with_cancel(middle).first;
      const recv_chan<void> all[] = {root.done(), middle.done(), leaf.done()};
      go([cancel = cancel] { cancel(); });
      const context late = with_cancel(middle).first;
      (round % 2 == 0 ? leaf : late).done().recv();
      for (const context& c : {root, middle}) {
        EXPECT_TRUE(c.err());
        EXPECT_TRUE(c.done().closed());
      }
    }
  });
}

// The same at each step of the cancellation: whom a child's wakes finds those above it done.
TEST_F(Context, ThoseAboveAreDoneFirst) {
  auto [root, cancel] = with_cancel(background());
  const context middle = with_cancel(root).first;
  const context leaf = with_cancel(middle).first;
  struct look : detail::cancel_watch {
    context above[2];
    recv_chan<void> done[2];
    int calls = 0, bad = 0;
  } w;
  for (int i : {0, 1}) {
    w.above[i] = i == 0 ? root : middle;
    w.done[i] = w.above[i].done();
  }
  ASSERT_TRUE(w.begin(leaf, [](detail::cancel_watch* self) noexcept {
    auto* l = static_cast<look*>(self);
    ++l->calls;
    for (int i : {0, 1}) l->bad += !l->above[i].err() || !l->done[i].closed() ? 1 : 0;
  }));
  cancel();
  w.end();
  EXPECT_EQ(w.calls, 1);
  EXPECT_EQ(w.bad, 0);
}

// Err is none as long as done is open: here and above, for goroutines and threads, whatever ends
// it.
TEST_F(Context, AnErrorMeansThatDoneIsClosed) {
  constexpr int kids = 5;
  const auto look = [](const context& asked, const std::vector<recv_chan<void>>& closed, bool cause,
                       auto&& wait) {
    while (cause ? asked.cause() == nullptr : !asked.err()) wait();
    for (const recv_chan<void>& c : closed) ASSERT_TRUE(c.closed());
  };
  const auto make = [](context root, std::vector<context>& tree) {
    tree.assign(1, root);
    for (int i = 0; i < kids; ++i) tree.push_back(with_cancel(root).first);
    tree.push_back(with_value(with_cancel(tree[1]).first, 1, 1));
  };
  std::vector<context> tree;
  for (int i = 0; i < scaled(500); ++i) {
    auto [root, cancel] = with_cancel(background());
    make(root, tree);
    const context& asked = tree[static_cast<std::size_t>(i) % tree.size()];
    std::vector<recv_chan<void>> closed{root.done(), asked.done()};
    std::atomic<bool> ready{false};
    std::thread looks([&] {
      ready = true;
      look(asked, closed, i % 2 == 0, [] {});
    });
    while (!ready) std::this_thread::yield();
    cancel();
    looks.join();
  }
  run_on_each([&] {
    for (int i = 0; i < scaled(1000); ++i) {
      auto [root, cancel] = i % 3 == 0 ? with_timeout(background(), std::chrono::microseconds(20))
                                       : with_cancel(background());
      make(root, tree);
      const context& asked = tree[static_cast<std::size_t>(i) % tree.size()];
      scope s;
      s.go([&, cancel = cancel] {
        if (i % 3 != 0) cancel();
      });
      look(asked, {root.done(), asked.done()}, i % 2 == 0, [] { weft::yield(); });
    }
  });
}

// Those who are called by the cancellation itself ask as anybody does, and wait for nobody.
TEST_F(Context, TheCancelledAskInTheCancellation) {
  run_on_each([] {
    auto [root, cancel] = with_cancel(background());
    std::vector<context> tree{root};
    for (int i = 0; i < 4; ++i)
      tree.push_back(with_cancel(tree[static_cast<std::size_t>(i)]).first);
    int asked = 0;
    std::atomic<int> ran{0};
    const auto all_done = [&tree] {
      for (const context& c : tree) {
        if (!c.err() || c.cause() == nullptr || !c.done().closed()) return false;
      }
      return true;
    };
    const auto ask = [&] { asked += all_done() ? 1 : 0; };
    const std::stop_callback above(root.stop_token(), ask), below(tree.back().stop_token(), ask);
    const stop_fn f = after_cancel(tree[2], [&] { ran += all_done() ? 1 : 0; });
    cancel();
    EXPECT_EQ(asked, 2);
    f.wait();
    EXPECT_EQ(ran, 1);
  });
}

// Whom a cancellation wakes may drop every handle there is, the one that is called among them.
TEST_F(Context, TheLastHandlesGoDuringTheCall) {
  struct handles {
    context ctx;
    cancel_fn cancel;
  };
  run_on_each([] {
    for (int round = 0; round < scaled(2000); ++round) {
      auto* h = new handles;
      std::tie(h->ctx, h->cancel) = with_cancel(background());
      if (round % 2 == 0) {
        after_cancel(h->ctx, [h] { delete h; });
      } else {
        go([h, done = h->ctx.done()] {
          done.recv();
          delete h;
        });
      }
      h->cancel();
    }
  });
  // In the call itself, and their memory is somebody else's at once.
  auto* h = new handles;
  std::tie(h->ctx, h->cancel) = with_cancel(background());
  std::vector<std::string> others;
  others.reserve(128);
  std::stop_callback drop(h->ctx.stop_token(), [&] {
    delete h;
    for (std::size_t n = 16; n < 1024; n += 8) others.emplace_back(n, '\xa5');
  });
  h->cancel();
  EXPECT_FALSE(others.empty());
}

}  // namespace
}  // namespace weft
