// SPDX-License-Identifier: Apache-2.0
// Cancelling a tree of contexts takes three passes, and no recursion, since trees may be deep and
// stacks are not:
//
//   1. claim    From the top: the reason goes into the node (the first one wins), children and
//               functions leave its list, and the children are next. A child that has lost its last
//               reference is left to its destructor. At the end one store at the top settles the
//               errors of all: whoever asks from now on gets one.
//   2. tell     From the top again: done is closed, the error let out, waiters are woken. Who asks
//               for the error of a node before its turn waits for it: as in Go, err() is none as
//               long as done is open.
//   3. finish   Functions are started, stop sources requested, references dropped: user code.
//
// So whoever finds a context done finds the error of all below it and of all above it up to where
// the cancellation began; and those above are done too, as in Go, where a parent's done is closed
// before its children's.
//
// Who comes second waits until the first has told everybody: it is promised that all below is done.
// Waiting goes downwards only: a node that somebody else claimed first is the top of what he
// claims. The passes 1 and 2 neither park nor call user code nor allocate, so the wait is short and
// spins. The second requests the stop of the node itself too (the first may be about to, or be in
// another callback of it): a stop source takes one request and lets the others pass.
//
//   CX1  reason is set ⇒ no child, function, waiter or channel is ever added, until it is over.
//   CX2  a node in a list has a living parent; its list's lock guards its links.
//   CX3  error is seen ⇒ error is seen in all below; one cancellation is seen at one moment.
//   CX4  at its end a node that has been claimed is in no list.
//   CX5  done is closed ⇒ done is closed in all above, up to the top of the cancellation.
//   CX6  error is seen ⇒ done is closed, here and in all above, up to there.
//
// Rejected: cancelling children under the parent's lock, as Go does. It needs a lock order down the
// tree and recursion, and a slow subtree blocks everybody who looks at its root.
//
// begin() runs anywhere, g0 included (deadline.cc); the rest on the caller's stack, not in
// scheduler context.
#include "context_tree/cancel.h"

#include <cstddef>
#include <sched.h>
#include <utility>

#include "base/atomic.h"
#include "context_tree/watch.h"

namespace weft::detail {

struct cancellation::passes {
  cancellation& c;
  int reason;
  const std::exception_ptr& cause;
  cancel_node* root;
  cancel_node** last;            // where the next one claimed goes: parents come first
  tree_link* pending = nullptr;  // children to claim, each with a reference; by tree_link::next
  tree_link* orphans = nullptr;  // likewise; ours

  bool claim(cancel_node* n) noexcept {
    n->lock.lock();
    if (n->reason != 0) {
      n->lock.unlock();
      return false;
    }
    n->claim(reason, cause, root);
    n->stop_due = n->stop.stop_possible();
    for (tree_link *l = n->first, *next = nullptr; l != nullptr; l = next) {
      next = l->next;
      if (l->what == tree_link::kind::watch) {
        n->watched = true;
        continue;
      }
      cancel_node::take_out(l);
      if (l->what == tree_link::kind::after) {
        static_cast<after_entry*>(l)->claim(true);  // from now on, it counts as started
        l->next = std::exchange(c.functions_, l);
      } else if (l->what == tree_link::kind::orphan) {
        l->next = std::exchange(orphans, l);
      } else if (static_cast<cancel_node*>(l)->try_retain()) {
        l->next = std::exchange(pending, l);
      }
    }
    n->lock.unlock();
    *last = n;
    last = &n->claimed_next;
    return true;
  }

  void claim_all_below() noexcept {
    while (pending != nullptr) {
      tree_link* l = pending;
      pending = l->next;
      auto* n = static_cast<cancel_node*>(l);
      if (claim(n)) continue;
      await_over(n);
      l->next = std::exchange(c.others_, l);
    }
  }

  void tell_all() noexcept {  // keeps CX5, CX6
    for (cancel_node* n = c.claimed_; n != nullptr; n = n->claimed_next) {
      // Acquire: with context_done's release. None is made any more (CX1).
      if (chan_core* done = n->done.load(std::memory_order_acquire)) done->close_now();
      n->tell();
      if (n->watched) {
        n->lock.lock();
        while (n->first != nullptr) {  // nothing but watches is left
          auto* w = static_cast<cancel_watch*>(n->first);
          cancel_node::take_out(w);
          w->call();
        }
        n->lock.unlock();
      }
    }
    while (orphans != nullptr) {
      tree_link* l = orphans;
      orphans = l->next;
      close_done(static_cast<cancel_node*>(l));
      l->next = std::exchange(c.functions_, l);
    }
  }
};

void cancellation::begin(cancel_node* root, errc why, const std::exception_ptr& cause) noexcept {
  root_ = root;
  if (root->is_published()) {
    await_over(root);
    return;
  }
  // Nobody is stopped between claim and the end: others spin until then, on g0 too.
  const rt::in_runtime inside;
  passes p{*this, static_cast<int>(why), cause, root, &claimed_};
  if (!p.claim(root)) {
    await_over(root);
    return;
  }
  p.claim_all_below();
  root->show();
  p.tell_all();
  root->over.store(true, std::memory_order_release);  // with await_over
}

void cancellation::finish() noexcept {
  if (claimed_ == nullptr) {
    root_->lock.lock();
    std::stop_source stop = root_->stop;
    root_->lock.unlock();
    if (stop.stop_possible()) stop.request_stop();
    return;
  }
  if (cancel_node* up = root_->above()) {
    up->lock.lock();
    if (root_->back != nullptr) cancel_node::take_out(root_);
    up->lock.unlock();
  }
  while (functions_ != nullptr) {
    tree_link* l = functions_;
    functions_ = l->next;
    if (l->what == tree_link::kind::orphan) {
      free_cancelled(static_cast<cancel_node*>(l));
    } else {
      start_after(static_cast<after_entry*>(l));
    }
  }
  for (cancel_node *n = claimed_, *next = nullptr; n != nullptr; n = next) {
    next = n->claimed_next;
    if (n->timed) disarm_deadline(n);
    if (n->stop_due) n->stop.request_stop();
    if (n->held) n->release();
    if (n != root_) n->release();
  }
  while (others_ != nullptr) {
    auto* n = static_cast<cancel_node*>(others_);
    others_ = n->tree_link::next;
    n->release();
  }
}

namespace {
template <class F>
void spin_until(F f) noexcept {
  for (int i = 0; !f(); ++i) {
    if (i < 100) {
      rt::cpu_relax();
    } else {
      ::sched_yield();
    }
  }
}
}  // namespace

void await_over(const cancel_node* n) noexcept {
  // Set before the caller could know that n is claimed; n holds those above it.
  const cancel_node* top = n->top;
  spin_until([top] { return top->over.load(std::memory_order_acquire); });  // with begin's release
}

// It is claimed. Not for the whole cancellation: watches are called in it (ours: they ask about
// those above only), and a large tree takes its time. User code runs in none of this.
int context_node::error_soon() const noexcept {
  // Acquire: with show's release; whom we ask about next, below us, is claimed too (CX3).
  if (!top_->visible_.load(std::memory_order_acquire)) return 0;
  int e = 0;
  spin_until([&] { return (e = error_.load(std::memory_order_acquire)) > 0; });  // with tell's
  return e;
}

void cancel(cancel_node* n, errc why, const std::exception_ptr& cause) noexcept {
  cancellation c;
  c.begin(n, why, cause);
  c.finish();
}

void cancel_context(context_node* n, std::exception_ptr cause) noexcept {
  // Whom it wakes may drop the last handles, the cancel_fn that was called among them.
  n->retain();
  cancel(static_cast<cancel_node*>(n), errc::canceled, cause);
  n->release();
}

}  // namespace weft::detail
