// SPDX-License-Identifier: Apache-2.0
// Cancelling a tree of contexts takes three passes, and no recursion, since trees may be deep and
// stacks are not:
//
//   1. claim    From the top: the reason goes into the node (the first one wins), children and
//               functions leave its list, and the children are next. A child that has lost its last
//               reference is left to its destructor.
//   2. publish  From the leaves up: the error becomes visible, waiters are woken, done is closed.
//               So whoever finds a context done finds all below it done.
//   3. finish   Functions are started, stop sources requested, references dropped: user code.
//
// Who comes second waits until the first has published: it is promised that all below is done.
// Waiting goes downwards only: a node that somebody else claimed first is the top of what he
// claims. The passes 1 and 2 neither park nor call user code nor allocate, so the wait is short and
// spins.
//
//   CX1  reason is set ⇒ no child or function is ever linked again.
//   CX2  a node in a list has a living parent; its list's lock guards its links.
//   CX3  error is set ⇒ error is set in all below.
//   CX4  at its end a node that has been claimed is in no list.
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
  tree_link* pending = nullptr;  // children to claim, each with a reference; by tree_link::next
  std::size_t unpublished = 0;   // of those claimed

  // The node's waiters and its channel; under its lock. The channel is closed after the unlock.
  static chan_core* publish(cancel_node* n) noexcept {
    n->publish();
    n->stop_due = n->stop.stop_possible();
    while (n->first != nullptr) {  // nothing but watches is left
      auto* w = static_cast<cancel_watch*>(n->first);
      cancel_node::take_out(w);
      w->call();
    }
    return n->done.load(std::memory_order_relaxed);
  }

  bool claim(cancel_node* n) noexcept {
    n->lock.lock();
    if (n->reason != 0) {
      n->lock.unlock();
      return false;
    }
    n->reason = reason;
    n->cause = cause;
    bool leaf = true;
    for (tree_link *l = n->first, *next = nullptr; l != nullptr; l = next) {
      next = l->next;
      if (l->what == tree_link::kind::watch) continue;
      cancel_node::take_out(l);
      if (l->what == tree_link::kind::after) {
        static_cast<after_entry*>(l)->claim(true);  // from now on, it counts as started
        l->next = std::exchange(c.functions_, l);
      } else if (static_cast<cancel_node*>(l)->try_retain()) {
        leaf = false;
        l->next = std::exchange(pending, l);
      }
    }
    chan_core* done = leaf ? publish(n) : nullptr;
    n->lock.unlock();
    if (done != nullptr) done->close_now();
    if (!leaf) ++unpublished;
    n->claimed_next = std::exchange(c.claimed_, n);
    return true;
  }

  void claim_all_below() noexcept {
    while (pending != nullptr) {
      tree_link* l = pending;
      pending = l->next;
      auto* n = static_cast<cancel_node*>(l);
      if (claim(n)) continue;
      await_published(n);
      l->next = std::exchange(c.others_, l);
    }
  }

  void publish_all() noexcept {  // keeps CX3: children are claimed after their parents
    for (cancel_node* n = c.claimed_; unpublished != 0; n = n->claimed_next) {
      if (n->is_published()) continue;
      n->lock.lock();
      chan_core* done = publish(n);
      n->lock.unlock();
      if (done != nullptr) done->close_now();
      --unpublished;
    }
  }
};

void cancellation::begin(cancel_node* root, errc why, const std::exception_ptr& cause) noexcept {
  if (root->is_published()) {
    await_published(root);
    return;
  }
  // Nobody is stopped between claim and publish: others spin until then, on g0 too.
  const rt::in_runtime inside;
  passes p{*this, static_cast<int>(why), cause};
  if (!p.claim(root)) {
    await_published(root);
    return;
  }
  root_ = root;
  p.claim_all_below();
  p.publish_all();
}

void cancellation::finish() noexcept {
  if (root_ == nullptr) return;
  if (cancel_node* up = root_->above()) {
    up->lock.lock();
    if (root_->back != nullptr) cancel_node::take_out(root_);
    up->lock.unlock();
  }
  while (functions_ != nullptr) {
    auto* e = static_cast<after_entry*>(functions_);
    functions_ = e->next;
    start_after(e);
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

// The channel too: it is closed a moment after the error has become visible, so that whom it wakes
// finds the error.
void await_published(const cancel_node* n) noexcept {
  const auto is_over = [n] {
    if (!n->is_published()) return false;
    // Set before the node was published, or born closed.
    const chan_core* done = n->done.load(std::memory_order_acquire);
    return done == nullptr || done->closed();
  };
  for (int i = 0; !is_over(); ++i) {
    if (i < 100) {
      rt::cpu_relax();
    } else {
      ::sched_yield();
    }
  }
}

void cancel(cancel_node* n, errc why, const std::exception_ptr& cause) noexcept {
  cancellation c;
  c.begin(n, why, cause);
  c.finish();
}

void cancel_context(context_node* n, std::exception_ptr cause) noexcept {
  cancel(static_cast<cancel_node*>(n), errc::canceled, cause);
}

}  // namespace weft::detail
