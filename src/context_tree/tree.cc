// SPDX-License-Identifier: Apache-2.0
// The tree of contexts: making, cancelling and destroying nodes.
//
// A child holds its parent; a parent's list knows its children without holding
// them. Each node has a lock of its own for its list and state. No two are ever
// held at once, and neither user code nor an allocation runs under one.
//
// Cancelling takes three passes, and no recursion, since trees may be deep and
// stacks are not:
//
//   1. claim    From the top: the reason goes into the node (the first one
//   wins), children and
//               functions leave its list, and the children are next. A child
//               that has lost its last reference is left to its destructor.
//   2. publish  From the leaves up: the error becomes visible, waiters are
//   woken, done is closed.
//               So whoever finds a context done finds all below it done.
//   3. finish   Functions are started, stop sources requested, references
//   dropped: user code.
//
// Who comes second waits until the first has published: it is promised that all
// below is done. Waiting goes downwards only: a node that somebody else claimed
// first is the top of what he claims. The passes 1 and 2 neither park nor call
// user code, so the wait is short and spins.
//
//   CX1  reason is set ⇒ no child or function is ever linked again.
//   CX2  a node in a list has a living parent; its list's lock guards its
//   links. CX3  error is set ⇒ error is set in all below. CX4  at its end a
//   node that has been claimed is in no list.
//
// Rejected: cancelling children under the parent's lock, as Go does. It needs a
// lock order down the tree and recursion, and a slow subtree blocks everybody
// who looks at its root.
//
// Runs on the caller's stack; anywhere but in scheduler context.
#include <optional>
#include <sched.h>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/atomic.h"
#include "context_tree/node.h"
#include "context_tree/tree_testing.h"
#include "context_tree/watch.h"

namespace weft::detail {

// -- plain nodes

namespace {

class root_node final : public context_node { // static
public:
  constexpr root_node() noexcept : context_node(kind) {}

private:
  static constexpr type kind{nullptr, nullptr};
};
constinit root_node background_;

class bare_node final : public context_node { // of without_cancel
public:
  explicit bare_node(context_node *parent) noexcept
      : context_node(kind, parent, nullptr, 1) {}

private:
  static void destroy_this(context_node *n) noexcept {
    delete static_cast<bare_node *>(n);
  }
  static constexpr type kind{&destroy_this, nullptr};
};

class plain_cancel_node final : public cancel_node {
public:
  explicit plain_cancel_node(context_node *parent) noexcept
      : cancel_node(kind, parent) {}

private:
  static void destroy_this(context_node *n) noexcept {
    auto *self = static_cast<plain_cancel_node *>(n);
    leave(self);
    delete self;
  }
  static constexpr type kind{&destroy_this, nullptr};
};

// Cancelled by a std::stop_token. The callback may come while the node is being
// destroyed: then it gets no reference, and the destructor of `callback_` waits
// for it.
class token_node final : public cancel_node {
public:
  explicit token_node(context_node *parent) noexcept
      : cancel_node(kind, parent) {}
  void listen(std::stop_token token) {
    callback_.emplace(std::move(token), on_stop{this});
  }

private:
  struct on_stop {
    token_node *n;
    void operator()() const noexcept {
      token_node *self = n; // the release may destroy this very object
      if (!self->try_retain())
        return;
      cancel(self, errc::canceled, nullptr);
      self->release();
    }
  };
  static void destroy_this(context_node *n) noexcept {
    auto *self = static_cast<token_node *>(n);
    self->callback_.reset();
    leave(self);
    delete self;
  }
  static constexpr type kind{&destroy_this, nullptr};
  std::optional<std::stop_callback<on_stop>> callback_;
};

} // namespace

context_node *background_node() noexcept { return &background_; }

context_node *make_cancel_node(context_node *parent) {
  auto *n = new plain_cancel_node(parent);
  enter(n);
  return n;
}

context_node *make_token_node(context_node *parent, std::stop_token token) {
  auto *n = new token_node(parent);
  enter(n);
  n->listen(std::move(token));
  return n;
}

context_node *make_without_cancel_node(context_node *parent) {
  return new bare_node(parent);
}

void throw_nil_parent() {
  throw std::invalid_argument("cannot create context from nil parent");
}
void throw_nil_key() { throw std::invalid_argument("nil key"); }

void context_node::destroy(context_node *n) noexcept {
  do {
    context_node *parent = n->parent_; // n needs it until its end
    n->type_->destroy(n);
    n = parent;
  } while (n->drop());
}

const void *find_value(const context_node *n, const std::type_info &key_type,
                       const void *key,
                       const std::type_info &value_type) noexcept {
  for (; n != nullptr; n = n->parent_) {
    const void *value = nullptr;
    if (n->type_->find != nullptr &&
        n->type_->find(n, key_type, key, value_type, &value))
      return value;
  }
  return nullptr;
}

// -- birth and end

cancel_node::~cancel_node() {
  if (chan_core *c = done.load(std::memory_order_relaxed))
    c->release();
}

void enter(cancel_node *n) noexcept {
  cancel_node *up = n->above();
  if (up == nullptr)
    return;
  up->lock.lock();
  if (up->reason == 0) {
    up->link(n);
  } else {
    n->reason = up->reason;
    n->cause = up->cause;
  }
  up->lock.unlock();
  if (n->reason != 0)
    n->publish();
}

void leave(cancel_node *n) noexcept {
  if (n->reason != 0)
    return; // keeps CX4; nobody else has a reference, so nobody writes it
  cancel_node *up = n->above();
  tree_link *orphans =
      n->first; // only functions: the others hold a reference to n
  bool fire = false;
  if (up != nullptr) {
    up->lock.lock();
    if (n->back != nullptr)
      cancel_node::take_out(n);
    fire = up->reason != 0;
    while (!fire && orphans != nullptr) {
      tree_link *l = orphans;
      orphans = l->next;
      up->link(l);
    }
    up->lock.unlock();
  }
  if (fire && orphans != nullptr)
    await_published(up);
  while (orphans != nullptr) {
    auto *e = static_cast<after_entry *>(orphans);
    orphans = e->next;
    if (fire) {
      start_after(e);
    } else {
      e->release(); // nobody can cancel it any more
    }
  }
}

// -- cancelling

namespace {

struct cancellation {
  int reason;
  const std::exception_ptr &cause;
  tree_link *pending =
      nullptr; // children to claim, each with a reference; by tree_link::next
  tree_link *functions = nullptr; // to start, likewise
  tree_link *others = nullptr;    // children that somebody else had claimed
  cancel_node *claimed = nullptr; // the last first; by claimed_next
  std::size_t unpublished = 0;    // of these

  // The node's waiters and its channel; under its lock. The channel is closed
  // after the unlock.
  static chan_core *publish(cancel_node *n) noexcept {
    n->publish();
    n->stop_due = n->stop.stop_possible();
    while (n->first != nullptr) { // nothing but watches is left
      auto *w = static_cast<cancel_watch *>(n->first);
      cancel_node::take_out(w);
      w->call();
    }
    return n->done.load(std::memory_order_relaxed);
  }

  bool claim(cancel_node *n) noexcept {
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
      if (l->what == tree_link::kind::watch)
        continue;
      cancel_node::take_out(l);
      if (l->what == tree_link::kind::after) {
        l->next = std::exchange(functions, l);
      } else if (static_cast<cancel_node *>(l)->try_retain()) {
        leaf = false;
        l->next = std::exchange(pending, l);
      }
    }
    chan_core *done = leaf ? publish(n) : nullptr;
    n->lock.unlock();
    if (done != nullptr)
      done->close_now();
    if (!leaf)
      ++unpublished;
    n->claimed_next = std::exchange(claimed, n);
    return true;
  }

  void claim_all_below() noexcept {
    while (pending != nullptr) {
      tree_link *l = pending;
      pending = l->next;
      auto *n = static_cast<cancel_node *>(l);
      if (claim(n))
        continue;
      await_published(n);
      l->next = std::exchange(others, l);
    }
  }

  void publish_all() noexcept { // keeps CX3: children are claimed after their
                                // parents
    for (cancel_node *n = claimed; unpublished != 0; n = n->claimed_next) {
      if (n->is_published())
        continue;
      n->lock.lock();
      chan_core *done = publish(n);
      n->lock.unlock();
      if (done != nullptr)
        done->close_now();
      --unpublished;
    }
  }

  void finish(cancel_node *root) noexcept {
    if (cancel_node *up = root->above()) {
      up->lock.lock();
      if (root->back != nullptr)
        cancel_node::take_out(root);
      up->lock.unlock();
    }
    while (functions != nullptr) {
      auto *e = static_cast<after_entry *>(functions);
      functions = e->next;
      start_after(e);
    }
    for (cancel_node *n = claimed, *next = nullptr; n != nullptr; n = next) {
      next = n->claimed_next;
      if (n->stop_due)
        n->stop.request_stop();
      if (n != root)
        n->release();
    }
    while (others != nullptr) {
      auto *n = static_cast<cancel_node *>(others);
      others = n->tree_link::next;
      n->release();
    }
  }
};

} // namespace

void await_published(const cancel_node *n) noexcept {
  for (int i = 0; !n->is_published(); ++i) {
    if (i < 100) {
      rt::cpu_relax();
    } else {
      ::sched_yield();
    }
  }
}

void cancel(cancel_node *n, errc why,
            const std::exception_ptr &cause) noexcept {
  if (n->is_published())
    return;
  cancellation c{static_cast<int>(why), cause};
  if (!c.claim(n)) {
    await_published(n);
    return;
  }
  c.claim_all_below();
  c.publish_all();
  c.finish(n);
}

void cancel_context(context_node *n, std::exception_ptr cause) noexcept {
  cancel(static_cast<cancel_node *>(n), errc::canceled, cause);
}

// -- looking

namespace {
cancel_node *canceller_of(const context_node *n) noexcept {
  return n != nullptr ? static_cast<cancel_node *>(n->canceller()) : nullptr;
}
} // namespace

chan_ref context_done(const context_node *node) {
  cancel_node *n = canceller_of(node);
  if (n == nullptr)
    return chan_ref();
  // Acquire: with the store below.
  chan_core *c = n->done.load(std::memory_order_acquire);
  if (c == nullptr) {
    chan_ref fresh(chan_core::make(0, ops_of<nothing>));
    n->lock.lock();
    c = n->done.load(std::memory_order_relaxed);
    if (c == nullptr) {
      c = fresh.get();
      c->retain(); // the node's
      // Nobody knows it yet: closing wakes nobody and does not wait.
      if (n->is_published())
        c->close_now();
      n->done.store(c, std::memory_order_release);
    }
    n->lock.unlock();
  }
  c->retain();
  return chan_ref(c);
}

std::exception_ptr context_cause(const context_node *node) noexcept {
  const cancel_node *n = canceller_of(node);
  if (n == nullptr || !n->is_published())
    return nullptr;
  if (n->cause != nullptr)
    return n->cause;
  return std::make_exception_ptr(
      std::system_error(make_error_code(static_cast<errc>(n->error()))));
}

std::int64_t context_deadline(const context_node *node) noexcept {
  const cancel_node *n = canceller_of(node);
  return n != nullptr ? n->deadline : no_context_deadline;
}

std::stop_token context_stop_token(const context_node *node) {
  cancel_node *n = canceller_of(node);
  if (n == nullptr)
    return {};
  std::stop_source fresh(std::nostopstate);
  for (;;) {
    n->lock.lock();
    if (!n->stop.stop_possible() && fresh.stop_possible())
      n->stop = fresh;
    const bool late = n->is_published();
    std::stop_source s = n->stop;
    n->lock.unlock();
    if (!s.stop_possible()) {
      fresh = std::stop_source();
      continue;
    }
    if (late)
      s.request_stop(); // the canceller may not have known of it
    return s.get_token();
  }
}

// -- waiters

bool cancel_watch::begin(const context &ctx, function f) noexcept {
  cancel_node *n = canceller_of(context_access::node(ctx));
  f_ = f;
  if (n == nullptr)
    return true;
  n->lock.lock();
  const bool live =
      !n->is_published(); // claimed: the canceller is about to call us
  if (live) {
    n->link(this);
    n_ = n;
  }
  n->lock.unlock();
  return live;
}

void cancel_watch::end() noexcept {
  if (n_ == nullptr)
    return;
  n_->lock.lock();
  if (back != nullptr)
    cancel_node::take_out(this);
  n_->lock.unlock();
  n_ = nullptr;
}

// -- tests

std::size_t child_count(const context &ctx) noexcept {
  cancel_node *n = canceller_of(context_access::node(ctx));
  if (n == nullptr)
    return 0;
  std::size_t count = 0;
  n->lock.lock();
  for (const tree_link *l = n->first; l != nullptr; l = l->next)
    ++count;
  n->lock.unlock();
  return count;
}

} // namespace weft::detail
