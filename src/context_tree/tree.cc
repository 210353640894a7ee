// SPDX-License-Identifier: Apache-2.0
// The tree of contexts: making and destroying nodes, and looking at them. cancel.cc cancels.
//
// A child holds its parent; a parent's list knows its children without holding them. Each node has
// a lock of its own for its list and state. No two are ever held at once, and neither user code nor
// an allocation runs under one.
//
// What somebody still counts on stays in reach as long as something can cancel it: a function of
// after_cancel, the channel of done, a stop_token. When its context goes without having been
// cancelled:
//   - a node that a deadline, a stop_token or signals may end lives on until then, held by that, if
//     somebody outside has its channel or its stop_token (stay); so it does while there are
//     functions in its list, or orphans (link_lasting);
//   - else its functions move to the list of the node above, and if somebody outside has its
//     channel or its stop_token, so does what is left of it, as an orphan: in that list, and the
//     list's own, and without its hold on the node above (leave). With that node's end they go on
//     upwards, and at the top they are dropped: nobody can cancel them any more.
// So nothing holds a child for the sake of its parent, and there are no cycles.
//
// That nobody has the channel any more is seen from the count of its handles: at the end of the
// node, and of orphans now and then, so that no more of them are in vain than are not. Of a
// stop_token nobody knows how many there are: one that was asked for counts as kept.
//
// Rejected: the channel holds the node. The parent would have to find out that nobody holds a node
// but its channel, which only the node knows; and whom the leak finder (debug/leaks.h) sees waiting
// on done of a context that nobody can cancel would keep it alive himself.
//
// Runs on the caller's stack; anywhere but in scheduler context.
#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "chan/wait.h"
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
    if (leave(self)) delete self;
  }
  static constexpr type kind{&destroy_this, nullptr};
};

// Cancelled by a std::stop_token. The callback may come while the node is being
// destroyed: then it gets no reference, and the destructor of `callback_` waits
// for it.
class token_node final : public cancel_node {
 public:
  explicit token_node(context_node* parent) noexcept : cancel_node(kind, parent) {}
  void listen(std::stop_token token) {
    token_ = token;
    lock.lock();
    armed = token_.stop_possible();
    lock.unlock();
    callback_.emplace(std::move(token), on_stop{this});
  }

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
    if (!self->token_.stop_possible()) self->armed = false;  // its sources are gone
    if (stay(self)) return;
    self->callback_.reset();
    if (leave(self)) delete self;
  }
  static constexpr type kind{&destroy_this, nullptr};
  std::stop_token token_;
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
  n->tell();
}

namespace {

// Nobody has a reference to n: so once nobody waits, nobody ever will.
bool is_awaited(const cancel_node* n) noexcept {
  // Relaxed: n's handles, through which these were made, have gone before us.
  const chan_core* c = n->done.load(std::memory_order_relaxed);
  return n->stop.stop_possible() || (c != nullptr && chan_view{c}.handles() > 1);
}

// Under up's lock: the orphans that nobody waits for any more, if it is worth a look. After one
// that leaves n in the list the next comes when n orphans more have been left there.
tree_link* take_forgotten(cancel_node* up, bool& let_go) noexcept {
  if (up->orphans < up->sweep_at) return nullptr;
  tree_link* found = nullptr;
  std::uint32_t rest = 0;
  for (tree_link *l = up->first, *next = nullptr; l != nullptr; l = next) {
    next = l->next;
    if (l->what != tree_link::kind::orphan || is_awaited(static_cast<cancel_node*>(l))) {
      ++rest;
      continue;
    }
    let_go = up->take_out_lasting(l) || let_go;
    l->next = std::exchange(found, l);
  }
  up->sweep_at = up->orphans + std::max(8U, rest);
  return found;
}

}  // namespace

void close_done(cancel_node* n) noexcept {
  // Relaxed: n is ours alone.
  if (chan_core* c = n->done.load(std::memory_order_relaxed)) c->close_now();
}

void free_cancelled(cancel_node* orphan) noexcept {
  if (orphan->stop.stop_possible()) orphan->stop.request_stop();
  orphan->free_orphan();
}

bool stay(cancel_node* n) noexcept {
  // Nobody else has a reference, so nobody writes these.
  if (n->reason != 0 || !n->armed || !is_awaited(n)) return false;
  n->parent()->retain();  // context_node::destroy gives one back
  n->lock.lock();         // a canceller takes it after it has got its reference
  n->held = true;
  n->lock.unlock();
  bool cancelled = !n->live_on(2);  // ours, and that of what it is armed for
  if (cancel_node* up = n->above()) {
    up->lock.lock();
    const bool from_above = up->reason != 0;  // and n may be in its list no longer
    up->lock.unlock();
    if (from_above) await_over(up);  // keeps CX5
    cancelled = cancelled || from_above;
  }
  if (cancelled) cancel(n, errc::canceled, nullptr);  // nobody can ask why
  n->release();
  return true;
}

bool leave(cancel_node* n) noexcept {
  // An orphan is in no list any more. A claimed one neither (CX4); nobody else has a reference, so
  // nobody writes it.
  if (n->what == tree_link::kind::orphan || n->reason != 0) return true;
  cancel_node* up = n->above();
  tree_link* left = n->first;  // functions and orphans: the others hold a reference to n
  tree_link* forgotten = nullptr;
  bool fire = false, stays = false, let_go = false;
  if (up != nullptr) {
    const bool awaited = is_awaited(n);
    up->lock.lock();
    if (n->back != nullptr) cancel_node::take_out(n);
    fire = up->reason != 0;
    if (!fire) {
      stays = awaited;
      if (stays) {
        n->what = tree_link::kind::orphan;
        up->link_lasting(n);
      }
      while (left != nullptr) {
        tree_link* l = left;
        left = l->next;
        up->link_lasting(l);
      }
      forgotten = take_forgotten(up, let_go);
    }
    up->lock.unlock();
    if (let_go) up->release();  // not its last: n has one, until destroy goes on
  }
  if (fire) {
    await_over(up);  // keeps CX5
    const rt::in_runtime inside;
    close_done(n);
    for (tree_link* l = left; l != nullptr; l = l->next) {
      if (l->what == tree_link::kind::orphan) close_done(static_cast<cancel_node*>(l));
    }
  }
  while (left != nullptr) {
    tree_link* l = left;
    left = l->next;
    if (l->what == tree_link::kind::orphan) {
      auto* o = static_cast<cancel_node*>(l);
      fire ? free_cancelled(o) : o->free_orphan();
      continue;
    }
    auto* e = static_cast<after_entry*>(l);
    if (fire) {
      e->claim(true);
      start_after(e);
    } else {
      e->release();  // nobody can cancel it any more
    }
  }
  while (forgotten != nullptr) {
    tree_link* l = forgotten;
    forgotten = l->next;
    static_cast<cancel_node*>(l)->free_orphan();
  }
  if (fire && n->stop.stop_possible()) n->stop.request_stop();
  return !stays;
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

namespace {
// The cause where none was given: one for each error, made when it is first asked for and never
// destroyed. Not a static of the function: who makes that could be left behind by its run, and all
// others would wait for him.
std::exception_ptr plain_cause(errc why) noexcept {
  static constinit std::atomic<const std::exception_ptr*> canceled{nullptr}, exceeded{nullptr};
  std::atomic<const std::exception_ptr*>& kept = why == errc::canceled ? canceled : exceeded;
  // Acquire: with the release of the one who was first.
  const std::exception_ptr* is = kept.load(std::memory_order_acquire);
  if (is != nullptr) return *is;
  std::exception_ptr made = std::make_exception_ptr(std::system_error(make_error_code(why)));
  const auto* fresh = new (std::nothrow) std::exception_ptr(made);
  if (fresh == nullptr) return made;
  if (kept.compare_exchange_strong(is, fresh, std::memory_order_acq_rel, std::memory_order_acquire))
    return made;
  delete fresh;
  return *is;
}
}  // namespace

std::exception_ptr context_cause(const context_node* node) noexcept {
  const cancel_node* n = canceller_of(node);
  if (n == nullptr || !n->is_published()) return nullptr;
  return n->cause != nullptr ? n->cause : plain_cause(static_cast<errc>(n->error()));
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
