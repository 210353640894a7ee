// SPDX-License-Identifier: Apache-2.0
// A node that can be cancelled: its fields, and the moves that context_tree's files share. tree.cc
// and cancel.cc have the algorithms.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <stop_token>

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
        deadline(parent->canceller() != nullptr ? above()->deadline : no_context_deadline) {}

  // The node whose list we stand in; it outlives us. Null: nobody above can be cancelled.
  cancel_node* above() const noexcept { return static_cast<cancel_node*>(parent()->canceller()); }

  bool is_published() const noexcept { return error() != 0; }
  // Under our lock, once: for that reason, in the cancellation that began at `from`.
  void claim(int why, const std::exception_ptr& for_cause, cancel_node* from) noexcept {
    reason = why;
    cause = for_cause;
    top_ = top = from;
    // Release: with error()'s acquire; the cause is seen by whoever sees the error.
    error_.store(why, std::memory_order_release);
  }
  // Of the top.
  void show() noexcept { visible_.store(true, std::memory_order_release); }

  void link(tree_link* l) noexcept {  // under our lock
    l->next = first;
    l->back = &first;
    if (first != nullptr) first->back = &l->next;
    first = l;
  }
  void link_function(after_entry* e) noexcept {  // under our lock
    link(e);
    // A pending deadline holds its node for the sake of functions.
    if (armed && !held) {
      held = true;
      retain();
    }
    if (armed) ++functions;
  }
  static void take_out(tree_link* l) noexcept {  // under the lock of its list
    *l->back = l->next;
    if (l->next != nullptr) l->next->back = l->back;
    l->back = nullptr;
  }

  rt::mutex lock{rt::lock_rank::context};
  tree_link* first = nullptr;   // children, functions and waiters; under the lock
  int reason = 0;               // an errc once it is claimed; under the lock
  cancel_node* top = nullptr;   // set with the reason; it is above us, or we are it
  bool stop_due = false;        // under the lock until claimed, then the canceller's
  bool watched = false;         // likewise
  bool timed = false;           // a deadline_node; constant
  bool armed = false;           // its timer is pending, or has just fired; under the lock
  bool held = false;            // by its timer; under the lock until claimed, then the canceller's
  std::uint32_t functions = 0;  // of a pending deadline: in the list; under the lock
  std::exception_ptr cause;     // under the lock until claimed, then constant
  std::atomic<chan_core*> done{nullptr};    // set once, under the lock; ours
  std::stop_source stop{std::nostopstate};  // set once, under the lock
  const std::int64_t deadline;              // the nearest, ours or from above
  const birthplace born;                    // its channel belongs there, whoever asks for it first
  cancel_node* claimed_next = nullptr;      // the canceller's
  std::atomic<bool> over{false};            // of a top: all that it took is done

 protected:
  cancel_node(const type& t, context_node* parent, std::int64_t when) noexcept
      : context_node(t, parent, this, 2), tree_link(kind::node), deadline(when) {}
  ~cancel_node();
};

// Links a new node, or lets it be born cancelled.
void enter(cancel_node* n) noexcept;
// The caller holds a reference. A null cause: none was given.
void cancel(cancel_node* n, errc why, const std::exception_ptr& cause) noexcept;
// Leaves the list; hands functions that nobody can stop any more to the node above.
void leave(cancel_node* n) noexcept;
// n is claimed: until it and all below it are done; never long.
void await_over(const cancel_node* n) noexcept;
// Of a timed node.
void disarm_deadline(cancel_node* n) noexcept;
// Runs it in a goroutine if it has been claimed for that. Takes over a reference; its node is done.
void start_after(after_entry* e) noexcept;

}  // namespace weft::detail
