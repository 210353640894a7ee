// SPDX-License-Identifier: Apache-2.0
// How a call that blocks is woken by the cancellation of a context: semaphore::acquire(ctx),
// condition_variable::wait(lock, ctx, pred), sleep_for(ctx, d).
//
// A cancel_watch lies on the stack of the waiter, in the list of its context. The canceller calls
// its function once, when err() is set, under the lock of the context's node (rank `context`): it
// may take locks of higher rank, claim the waiter and wake it, and nothing else. It must not park,
// allocate, or touch the context. end() takes the same lock, so when it has returned the function
// is neither running nor will it run: the watch may go.
//
//   struct waiting : detail::cancel_watch {
//     rt::waiter w;
//     std::atomic<bool> claimed{false};   // by the waker or by the cancellation: whoever comes
//     first
//   } me;
//   const auto cancelled = [](detail::cancel_watch* self) noexcept {
//     auto* me = static_cast<waiting*>(self);
//     if (!me->claimed.exchange(true)) me->w.wake();     // or leave a mark, if it has not parked
//     yet
//   };
//   if (!me.begin(ctx, cancelled)) return ctx.err();     // cancelled before
//   … queue me, park …
//   me.end();                                            // before me goes, whoever woke it
//
// The function may be called between begin() and the park: publish the waiter to wakers in the
// commit (or before begin()), or let the commit look for the mark. The caller keeps the context
// alive and holds no runtime lock at begin() and end().
#pragma once

#include "weft/context.hpp"

namespace weft::detail {

class cancel_node;

// The nearest deadline of n, or above it, that is of the caller's clock (a bubble has its own);
// no_context_deadline: none. One of another clock ends a wait by its cancellation only.
std::int64_t deadline_here(const context_node* n) noexcept;

class cancel_watch : public tree_link {
 public:
  using function = void (*)(cancel_watch*) noexcept;

  cancel_watch() noexcept : tree_link(kind::watch) {}
  cancel_watch(const cancel_watch&) = delete;
  cancel_watch& operator=(const cancel_watch&) = delete;

  // False: cancelled already, and f will not be called.
  [[nodiscard]] bool begin(const context& ctx, function f) noexcept;
  void end() noexcept;

  void call() noexcept { f_(this); }  // for the canceller

 private:
  function f_ = nullptr;
  cancel_node* n_ = nullptr;
};

}  // namespace weft::detail
