// SPDX-License-Identifier: Apache-2.0
// A node that can be cancelled: its fields, and the moves that context_tree's files share. tree.cc
// and cancel.cc have the algorithms.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <stop_token>
#include <utility>

#include "os/mutex.h"
#include "weft/context.hpp"
#include "weft/detail/bubble.hpp"

namespace weft::detail {

class cancel_node : public context_node, public tree_link {
 public:
  // Two references. Not yet linked: see enter().
  cancel_node(const type& t, context_node* parent) noexcept
      : context_node(t, parent, this, 2),
        tree_link(kind::node),
        deadline(parent->canceller() != nullptr ? above()->deadline : no_context_deadline),
        deadline_bubble(parent->canceller() != nullptr ? above()->deadline_bubble : 0) {}

  // The node whose list we stand in; it outlives us. Null: nobody above can be cancelled.
  cancel_node* above() const noexcept { return static_cast<cancel_node*>(parent()->canceller()); }

  bool is_published() const noexcept { return error() != 0; }
  // Under our lock, once: for that reason, in the cancellation that began at `from`.
  void claim(int why, const std::exception_ptr& for_cause, cancel_node* from) noexcept {
    reason = why;
    cause = for_cause;
    top_ = top = from;
    // Release: with error()'s acquire; top_ is seen by whoever sees that it is claimed.
    error_.store(-why, std::memory_order_release);
  }
  // Once it is claimed and shown, and done is closed.
  void tell() noexcept {
    // Release: with error()'s acquire; whoever sees the error sees the cause, and done closed.
    error_.store(reason, std::memory_order_release);
  }
  // Of the top.
  void show() noexcept { visible_.store(true, std::memory_order_release); }

  void link(tree_link* l) noexcept {  // under our lock
    l->next = first;
    l->back = &first;
    if (first != nullptr) first->back = &l->next;
    first = l;
  }
  void link_lasting(tree_link* l) noexcept {  // a function or an orphan; under our lock
    link(l);
    if (l->what == kind::orphan) ++orphans;
    // What may end us holds us for their sake.
    if (armed && !held) {
      held = true;
      retain();
    }
    if (armed) ++lasting;
  }
  // Likewise. True: it held us for that one, and the caller gives us back.
  [[nodiscard]] bool take_out_lasting(tree_link* l) noexcept {
    take_out(l);
    if (l->what == kind::orphan) --orphans;
    return lasting != 0 && --lasting == 0 && std::exchange(held, false);
  }
  static void take_out(tree_link* l) noexcept {  // under the lock of its list
    *l->back = l->next;
    if (l->next != nullptr) l->next->back = l->back;
    l->back = nullptr;
  }

  bool live_on(int refs) noexcept { return revive(refs); }  // see there
  void free_orphan() noexcept { free_alone(); }

  rt::mutex lock{rt::lock_rank::context};
  tree_link* first = nullptr;  // children, orphans, functions and waiters; under the lock
  int reason = 0;              // an errc once it is claimed; under the lock
  cancel_node* top = nullptr;  // set with the reason; it is above us, or we are it
  bool stop_due = false;       // under the lock until claimed, then the canceller's
  bool watched = false;        // likewise
  bool timed = false;          // a deadline_node; constant
  // Something besides the parent may end it: its timer, which is pending or has just fired; its
  // stop_token; its signals. Under the lock.
  bool armed = false;
  bool held = false;           // by that; under the lock until claimed, then the canceller's
  std::uint32_t lasting = 0;   // of an armed one: functions and orphans; under the lock
  std::uint32_t orphans = 0;   // under the lock
  std::uint32_t sweep_at = 8;  // so many orphans: to be looked through; under the lock
  std::exception_ptr cause;    // under the lock until claimed, then constant
  std::atomic<chan_core*> done{nullptr};    // set once, under the lock; ours
  std::stop_source stop{std::nostopstate};  // set once, under the lock
  const std::int64_t deadline;              // the nearest of its clock, ours or from above
  const std::uint32_t deadline_bubble;      // whose clock that is; 0: the real one
  const birthplace born;                    // its channel belongs there, whoever asks for it first
  cancel_node* claimed_next = nullptr;      // the canceller's
  std::atomic<bool> over{false};            // of a top: all that it took is done

 protected:
  cancel_node(const type& t, context_node* parent, std::int64_t when,
              std::uint32_t of_bubble) noexcept
      : context_node(t, parent, this, 2),
        tree_link(kind::node),
        deadline(when),
        deadline_bubble(of_bubble) {}
  ~cancel_node();
};

// Links a new node, or lets it be born cancelled.
void enter(cancel_node* n) noexcept;
// The caller holds a reference. A null cause: none was given.
void cancel(cancel_node* n, errc why, const std::exception_ptr& cause) noexcept;
// -- at the end of a node, when it has no reference any more
// True: somebody outside waits for done or has a stop_token, and what it is armed for may end it:
// so it lives on until then.
bool stay(cancel_node* n) noexcept;
// Leaves the list; hands functions that nobody can stop any more to the node above. False: the node
// itself is left there, as an orphan, since somebody waits outside; else the caller frees it.
[[nodiscard]] bool leave(cancel_node* n) noexcept;
// Of an orphan, or a node that nobody knows any more: it is cancelled. Parts of one thing.
void close_done(cancel_node* n) noexcept;
void free_cancelled(cancel_node* orphan) noexcept;  // and requests its stop: user code
// n is claimed: until it and all below it are done; never long.
void await_over(const cancel_node* n) noexcept;
// Of a timed node.
void disarm_deadline(cancel_node* n) noexcept;
// Runs it in a goroutine if it has been claimed for that. Takes over a reference; its node is done.
void start_after(after_entry* e) noexcept;

}  // namespace weft::detail
