// SPDX-License-Identifier: Apache-2.0
// The tree of contexts: making and destroying nodes, and looking at them. cancel.cc cancels.
//
// A child holds its parent; a parent's list knows its children without holding them. Each node has
// a lock of its own for its list and state. No two are ever held at once, and neither user code nor
// an allocation runs under one.
//
// A function of after_cancel stays in reach as long as something can cancel it: when its context
// goes, it moves to the list of the node above (leave), and a pending deadline holds its node while
// there are functions in its list. Nothing holds a child for the sake of its parent, so there are
// no cycles.
//
// Runs on the caller's stack; anywhere but in scheduler context.
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "context_tree/node.h"
#include "context_tree/tree_testing.h"
#include "context_tree/watch.h"

namespace weft::detail {

// -- plain nodes

namespace {

class root_node final : public context_node {  // static
 public:
  constexpr root_node() noexcept : context_node(kind) {}

 private:
  static constexpr type kind{nullptr, nullptr};
};
constinit root_node background_;

class bare_node final : public context_node {  // of without_cancel
 public:
  explicit bare_node(context_node* parent) noexcept : context_node(kind, parent, nullptr, 1) {}

 private:
  static void destroy_this(context_node* n) noexcept { delete static_cast<bare_node*>(n); }
  static constexpr type kind{&destroy_this, nullptr};
};

class plain_cancel_node final : public cancel_node {
 public:
  explicit plain_cancel_node(context_node* parent) noexcept : cancel_node(kind, parent) {}

 private:
  static void destroy_this(context_node* n) noexcept {
    auto* self = static_cast<plain_cancel_node*>(n);
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
  explicit token_node(context_node* parent) noexcept : cancel_node(kind, parent) {}
  void listen(std::stop_token token) { callback_.emplace(std::move(token), on_stop{this}); }

 private:
  struct on_stop {
    token_node* n;
    void operator()() const noexcept {
      token_node* self = n;  // the release may destroy this very object
      if (!self->try_retain()) return;
      cancel(self, errc::canceled, nullptr);
      self->release();
    }
  };
  static void destroy_this(context_node* n) noexcept {
    auto* self = static_cast<token_node*>(n);
    self->callback_.reset();
    leave(self);
    delete self;
  }
  static constexpr type kind{&destroy_this, nullptr};
  std::optional<std::stop_callback<on_stop>> callback_;
};

}  // namespace

context_node* background_node() noexcept { return &background_; }

context_node* make_cancel_node(context_node* parent) {
  auto* n = new plain_cancel_node(parent);
  enter(n);
  return n;
}

context_node* make_token_node(context_node* parent, std::stop_token token) {
  auto* n = new token_node(parent);
  enter(n);
  n->listen(std::move(token));
  return n;
}

context_node* make_without_cancel_node(context_node* parent) { return new bare_node(parent); }

void throw_nil_parent() { throw std::invalid_argument("cannot create context from nil parent"); }
void throw_nil_key() { throw std::invalid_argument("nil key"); }

void context_node::destroy(context_node* n) noexcept {
  do {
    context_node* parent = n->parent_;  // n needs it until its end
    n->type_->destroy(n);
    n = parent;
  } while (n->drop());
}

const void* find_value(const context_node* n, const std::type_info& key_type, const void* key,
                       const std::type_info& value_type) noexcept {
  for (; n != nullptr; n = n->parent_) {
    const void* value = nullptr;
    if (n->type_->find != nullptr && n->type_->find(n, key_type, key, value_type, &value))
      return value;
  }
  return nullptr;
}

// -- birth and end

cancel_node::~cancel_node() {
  // Taken out: memory that is free is not to look like a handle (debug/leaks.cc).
  if (chan_core* c = done.exchange(nullptr, std::memory_order_relaxed)) c->release();
}

void enter(cancel_node* n) noexcept {
  cancel_node* up = n->above();
  if (up == nullptr) return;
  up->lock.lock();
  const bool live = up->reason == 0;
  if (live) up->link(n);
  up->lock.unlock();
  if (live) return;
  await_over(up);  // keeps CX5
  n->claim(up->reason, up->cause, up->top);
}

void leave(cancel_node* n) noexcept {
  if (n->reason != 0) return;  // keeps CX4; nobody else has a reference, so nobody writes it
  cancel_node* up = n->above();
  tree_link* orphans = n->first;  // only functions: the others hold a reference to n
  bool fire = false;
  if (up != nullptr) {
    up->lock.lock();
    if (n->back != nullptr) cancel_node::take_out(n);
    fire = up->reason != 0;
    while (!fire && orphans != nullptr) {
      tree_link* l = orphans;
      orphans = l->next;
      up->link_function(static_cast<after_entry*>(l));
    }
    up->lock.unlock();
  }
  if (fire && orphans != nullptr) await_over(up);
  while (orphans != nullptr) {
    auto* e = static_cast<after_entry*>(orphans);
    orphans = e->next;
    if (fire) {
      e->claim(true);
      start_after(e);
    } else {
      e->release();  // nobody can cancel it any more
    }
  }
}

// -- looking

namespace {
cancel_node* canceller_of(const context_node* n) noexcept {
  return n != nullptr ? static_cast<cancel_node*>(n->canceller()) : nullptr;
}
}  // namespace

chan_ref context_done(const context_node* node) {
  cancel_node* n = canceller_of(node);
  if (n == nullptr) return chan_ref();
  // Acquire: with the store below.
  chan_core* c = n->done.load(std::memory_order_acquire);
  if (c == nullptr) {
    chan_ref fresh(chan_core::make(0, ops_of<nothing>, n->born.bubble()));
    n->lock.lock();
    if (n->reason != 0) {  // keeps CX1, CX5
      n->lock.unlock();
      await_over(n);
      n->lock.lock();
    }
    c = n->done.load(std::memory_order_relaxed);
    if (c == nullptr) {
      c = fresh.get();
      c->retain();  // the node's
      // Nobody knows it yet: closing wakes nobody and does not wait.
      if (n->reason != 0) c->close_now();
      n->done.store(c, std::memory_order_release);
    }
    n->lock.unlock();
  }
  c->retain();
  return chan_ref(c);
}

std::exception_ptr context_cause(const context_node* node) noexcept {
  const cancel_node* n = canceller_of(node);
  if (n == nullptr || !n->is_published()) return nullptr;
  if (n->cause != nullptr) return n->cause;
  return std::make_exception_ptr(std::system_error(make_error_code(static_cast<errc>(n->error()))));
}

std::int64_t context_deadline(const context_node* node) noexcept {
  const cancel_node* n = canceller_of(node);
  return n != nullptr ? n->deadline : no_context_deadline;
}

std::stop_token context_stop_token(const context_node* node) {
  cancel_node* n = canceller_of(node);
  if (n == nullptr) return {};
  std::stop_source fresh(std::nostopstate);
  for (;;) {
    n->lock.lock();
    if (!n->stop.stop_possible() && fresh.stop_possible()) n->stop = fresh;
    const bool late = n->reason != 0;
    std::stop_source s = n->stop;
    n->lock.unlock();
    if (!s.stop_possible()) {
      fresh = std::stop_source();
      continue;
    }
    if (late) {  // the canceller may not have known of it
      await_over(n);
      s.request_stop();
    }
    return s.get_token();
  }
}

// -- waiters

bool cancel_watch::begin(const context& ctx, function f) noexcept {
  cancel_node* n = canceller_of(context_access::node(ctx));
  f_ = f;
  if (n == nullptr) return true;
  n->lock.lock();
  const bool live = n->reason == 0;  // keeps CX1
  if (live) {
    n->link(this);
    n_ = n;
  }
  n->lock.unlock();
  if (!live) await_over(n);  // err() shall be set
  return live;
}

void cancel_watch::end() noexcept {
  if (n_ == nullptr) return;
  n_->lock.lock();
  if (back != nullptr) cancel_node::take_out(this);
  n_->lock.unlock();
  n_ = nullptr;
}

// -- tests

std::size_t child_count(const context& ctx) noexcept {
  cancel_node* n = canceller_of(context_access::node(ctx));
  if (n == nullptr) return 0;
  std::size_t count = 0;
  n->lock.lock();
  for (const tree_link* l = n->first; l != nullptr; l = l->next) ++count;
  n->lock.unlock();
  return count;
}

}  // namespace weft::detail
