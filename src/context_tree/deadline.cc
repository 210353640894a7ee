// SPDX-License-Identifier: Apache-2.0
// Contexts with a deadline: a node and a durable timer in one.
//
// The timer refers to the node without holding it; when it is due it takes a reference, unless the
// node is being destroyed. While functions of after_cancel stand in its list a pending deadline
// holds its node (cancel_node::link_lasting): they shall run though all handles have gone. So it
// does from the end of the last handle on, if somebody still has the channel of done (stay).
//
// A deadline that comes late, after another cancellation, finds the node claimed and does nothing;
// so stale fires need no number. The node's lock orders arming and disarming.
//
// A deadline is of the clock of the place where it was made: the real one, or a bubble's. Two are
// compared only if they are of one clock; else each counts for itself, and the upper one reaches
// those below as any cancellation does.
//
// fired() runs on g0, where nothing may allocate or free and no user code may run: it begins the
// cancellation there, so that waiters wake at once, and leaves the rest to a goroutine. On the
// service thread it does all itself.
#include "context_tree/cancel.h"
#include "context_tree/watch.h"
#include "sched/bubble.h"
#include "sched/timers.h"

namespace weft::detail {
namespace {

class deadline_node final : public cancel_node, public rt::durable_timer {
 public:
  deadline_node(context_node* parent, std::int64_t at, std::exception_ptr why) noexcept
      : cancel_node(kind, parent, at, rt::current_bubble()),
        durable_timer(deadline_bubble),
        cause_(std::move(why)) {
    timed = true;
    durable_timer::keep = [](durable_timer* t) noexcept {
      return static_cast<deadline_node*>(t)->try_retain();
    };
    durable_timer::fired = &expired;
    durable_timer::dropped = &never_comes;
  }
  void start() noexcept {
    if (deadline <= rt::clock_now()) {
      cancel(this, errc::deadline_exceeded, cause_);
      return;
    }
    lock.lock();
    armed = reason == 0;  // a parent may have been faster
    if (armed) rt::arm(this, deadline, 0);
    lock.unlock();
  }

 private:
  static void expired(durable_timer* t, std::uint64_t, std::int64_t) noexcept {
    auto* self = static_cast<deadline_node*>(t);
    rest r(self);
    r.c.begin(self, errc::deadline_exceeded, self->cause_);
    if (rt::current_m() == nullptr) {
      r();
    } else {
      spawn<closure<rest>>(std::move(r));
    }
  }
  static void never_comes(durable_timer* t) noexcept {
    auto* self = static_cast<deadline_node*>(t);
    self->lock.lock();
    self->armed = false;
    const bool held = self->reason == 0 && std::exchange(self->held, false);
    self->lock.unlock();
    if (held) self->release();
    self->release();  // keep's
  }
  struct rest {
    deadline_node* n;
    cancellation c;
    explicit rest(deadline_node* node) noexcept : n(node) {}
    rest(rest&& o) noexcept : n(std::exchange(o.n, nullptr)), c(o.c) {}
    rest& operator=(rest&&) = delete;
    ~rest() {
      if (n != nullptr) n->release();
    }
    void operator()() noexcept { c.finish(); }
  };
  static_assert(sizeof(rest) <= largest_in_line);  // no memory on g0

  static void destroy_this(context_node* n) noexcept {
    auto* self = static_cast<deadline_node*>(n);
    if (stay(self)) return;
    disarm_deadline(self);
    if (leave(self)) delete self;
  }
  static constexpr type kind{&destroy_this, nullptr};

  std::exception_ptr cause_;  // of the deadline
};

}  // namespace

void disarm_deadline(cancel_node* n) noexcept {
  n->lock.lock();
  const bool armed = std::exchange(n->armed, false);
  n->lock.unlock();
  if (armed) rt::disarm(static_cast<deadline_node*>(n));
}

std::int64_t deadline_here(const context_node* node) noexcept {
  const std::uint32_t here = rt::current_bubble();
  const auto* n = static_cast<const cancel_node*>(node->canceller());
  // One without a deadline has none above it either.
  for (; n != nullptr && n->deadline != no_context_deadline; n = n->above()) {
    if (n->deadline_bubble == here) return n->deadline;
  }
  return no_context_deadline;
}

context_node* make_deadline_node(context_node* parent, std::int64_t when,
                                 std::exception_ptr cause) {
  if (when == no_context_deadline || deadline_here(parent) <= when) return make_cancel_node(parent);
  auto* n = new deadline_node(parent, when, std::move(cause));
  enter(n);
  n->start();
  return n;
}

}  // namespace weft::detail
