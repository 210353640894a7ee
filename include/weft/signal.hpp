// SPDX-License-Identifier: Apache-2.0
// Signals of the operating system, as values in a channel or as the end of a context.
//
//   auto [ctx, stop] = weft::with_signals(weft::background(), {SIGINT, SIGTERM});
//   serve(ctx);   // until somebody asks us to end
//
// Any number of objects may want one signal: each gets it. While there is one, the signal does
// nothing else; with the last, what was set up for it before (a handler, 'ignore', the default)
// comes back. One that comes just then is either delivered or takes that action.
//
// An empty list is every signal, as in Go, but for those below and those that a thread brings upon
// itself: SIGABRT, SIGTRAP and SIGSYS have to be named.
//
// Not to be had, std::invalid_argument: SIGKILL and SIGSTOP, which nobody can catch; SIGSEGV,
// SIGBUS, SIGFPE and SIGILL, after which the program cannot go on; SIGURG, by which the runtime
// preempts.
#pragma once

#include <csignal>
#include <initializer_list>
#include <stdexcept>
#include <utility>

#include <weft/chan.hpp>
#include <weft/context.hpp>

namespace weft {

namespace detail {

class signal_channel;
// The context and what its cancel_fn refers to, a reference to each.
WEFT_API std::pair<context_node*, context_node*> make_signal_node(context_node* parent,
                                                                  std::initializer_list<int> list);

}  // namespace detail

// Delivers from its construction to stop(). Move-only; the destructor stops. Waiting for c is no
// deadlock before that.
struct WEFT_API signals {
  explicit signals(std::initializer_list<int> list);
  signals(signals&& o) noexcept : c(std::move(o.c)), s_(std::exchange(o.s_, nullptr)) {}
  signals& operator=(signals&& o) noexcept;
  ~signals();

  // The numbers of those that came. It holds 64; what comes when it is full is dropped. Never
  // closed.
  recv_chan<int> c;
  // When it has returned nothing more is sent to c. What is in it stays. As often as you like.
  void stop() noexcept;

 private:
  detail::signal_channel* s_;
};

// The cause of a context that a signal has cancelled. what(): "terminated signal received".
class WEFT_API signal_received : public std::runtime_error {
 public:
  explicit signal_received(int signal);
  ~signal_received() override;
  int signal() const noexcept { return signal_; }

 private:
  int signal_;
};

// Cancelled by the first of these signals. They stay caught until the cancel_fn is called, the
// parent is cancelled, or the context's last handle goes; if somebody still has the channel of
// done() then, or a stop_token, until the signal has come.
[[nodiscard]] inline std::pair<context, cancel_fn> with_signals(const context& parent,
                                                                std::initializer_list<int> list) {
  using access = detail::context_access;
  const auto [n, canceller] = detail::make_signal_node(access::parent(parent), list);
  return access::adopt_pair(n, canceller);
}

}  // namespace weft
