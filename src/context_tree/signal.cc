// SPDX-License-Identifier: Apache-2.0
// Contexts that a signal cancels: two nodes. The outer one is what the cancel_fn refers to; the
// inner one, its child, is the context, and wants the signals.
//
//   a signal               cancels the inner one; the signals stay caught, so that a second one
//                          does not kill a program that is about to end
//   cancel_fn, the parent  cancel the outer one, whose watch lets the signals go, and so the inner
//   the last handle goes   the inner one's end lets the signals go, unless somebody still waits for
//                          a signal: on the channel of done, or with a function (stay, held)
//
// The registry refers to the inner node without holding it; one that is to be cancelled is held
// until the service thread has done so, since that runs user code (functions, stop callbacks).
//
// Runs on the caller's stack; deliver under the registry's lock, later on its service thread.
#include <csignal>
#include <cstring>
#include <string>

#include "context_tree/cancel.h"
#include "context_tree/watch.h"
#include "signal/registry.h"
#include "weft/signal.hpp"

namespace weft {
namespace {

// Go's form: "interrupt signal received".
std::string text_of(int sig) {
  const char* name = ::sigdescr_np(sig);
  std::string text = name != nullptr ? name : "signal " + std::to_string(sig);
  if (text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text + " signal received";
}

}  // namespace

signal_received::signal_received(int signal)
    : std::runtime_error(text_of(signal)), signal_(signal) {}
signal_received::~signal_received() = default;

namespace detail {
namespace {

class signal_node final : public cancel_node, public signal_subscriber, public cancel_watch {
 public:
  explicit signal_node(context_node* outer) noexcept
      : cancel_node(kind, outer), signal_subscriber(&deliver, &later) {}

  void start(const context& outer, signal_set wanted) {
    subscribe(wanted);
    // Under the outer node's lock, whose rank is below the registry's.
    const bool alive = cancel_watch::begin(
        outer, [](cancel_watch* w) noexcept { static_cast<signal_node*>(w)->unsubscribe(); });
    if (!alive) unsubscribe();
    lock.lock();
    armed = alive;
    lock.unlock();
  }

 private:
  static void deliver(signal_subscriber* s, int sig, std::uint32_t) noexcept {
    auto* self = static_cast<signal_node*>(s);
    if (self->received_ != 0 || !self->try_retain()) return;
    self->received_ = sig;
    call_later(s);
  }
  static void later(signal_subscriber* s) noexcept {
    auto* self = static_cast<signal_node*>(s);
    cancel(self, errc::canceled, std::make_exception_ptr(signal_received(self->received_)));
    self->release();
  }
  static void destroy_this(context_node* n) noexcept {
    auto* self = static_cast<signal_node*>(n);
    if (stay(self)) return;
    self->cancel_watch::end();
    self->unsubscribe();
    if (leave(self)) delete self;
  }
  static constexpr type kind{&destroy_this, nullptr};

  int received_ = 0;  // written under the registry's lock, once
};

}  // namespace

std::pair<context_node*, context_node*> make_signal_node(context_node* parent,
                                                         std::initializer_list<int> list) {
  const signal_set wanted = signal_set_of(list);
  const auto both = context_access::adopt_pair(make_cancel_node(parent));
  const context& outer = both.first;
  auto* n = new signal_node(context_access::node(outer));
  enter(n);
  n->release();  // of the two the context's is left
  try {
    n->start(outer, wanted);
  } catch (...) {
    n->release();
    throw;
  }
  context_access::node(outer)->retain();
  return {n, context_access::node(outer)};
}

}  // namespace detail
}  // namespace weft
