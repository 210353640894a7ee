// SPDX-License-Identifier: Apache-2.0
// Tests of concurrent code: one thread, an order that a seed decides, virtual time. See
// docs/testing.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <weft/go.hpp>

namespace weft::net {
class conn;
}  // namespace weft::net
namespace weft::detail {
class memory_network;
}  // namespace weft::detail

namespace weft::testing {

// Thrown by bubble: goroutines in it are blocked for ever. They are left behind, as by the end of a
// run; what they own is not destroyed.
struct deadlock : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Blocks until every other goroutine of the bubble is durably blocked. Throws std::logic_error
// outside a bubble, and if another one is in wait() already.
WEFT_API void wait();

}  // namespace weft::testing

namespace weft::detail {

// f(arg) leaves what it throws in `thrown`.
WEFT_API void run_bubble(std::uint64_t seed, void (*f)(void*), void* arg,
                         const std::exception_ptr& thrown);

}  // namespace weft::detail

namespace weft::testing {

// Runs f, and all that it starts, as goroutines of a bubble: on one thread, one at a time; which of
// those that could run does so is decided by the seed alone, at every call that may park. The
// bubble's clock starts at 2000-01-01 00:00 UTC and stands still while anybody can run; when all
// are durably blocked it jumps to the next timer. Blocked durably is who sleeps, or waits on what
// was made in the bubble: channels, selects over such, wait groups, semaphores, latches, barriers,
// tasks, scopes, and every condition variable. Not durably: who waits for a mutex, a descriptor or
// a system call, or for something from outside.
//
// Returns when all have ended: f's result. Throws what f threw; else deadlock, if some never end.
// goid() counts from 1, which is f. May be called by a goroutine, or by a plain thread with or
// without a run somewhere (std::logic_error if that ends while it is under way); not inside a
// bubble (std::logic_error).
template <class F>
requires std::invocable<F>
decltype(auto) bubble(std::uint64_t seed, F&& f) {
  using R = std::invoke_result_t<F>;
  struct call {
    std::remove_reference_t<F>* f;
    detail::task_state<R> result{1};
  } c{std::addressof(f)};
  detail::run_bubble(
      seed,
      [](void* p) {
        auto* self = static_cast<call*>(p);
        detail::run_catching(self->result.error, [self] {
          self->result.run([self]() -> R { return std::invoke(std::forward<F>(*self->f)); });
        });
      },
      &c, c.result.error);
  if (c.result.error) std::rethrow_exception(std::move(c.result.error));
  if (!c.result.has_value()) throw goexited();
  return static_cast<R>(c.result.take());
}

// While one lives, all that its bubble dials, listens to and resolves with <weft/net.hpp> is in
// memory; without one it is the machine's. Every wait is durable, deadlines are virtual, and
// nothing leaves the bubble: outside, such a conn can only be closed (else
// std::errc::operation_not_permitted). fd() is -1, and dup() is not supported.
//
// localhost is 127.0.0.1, every other name a host of this network: 10.0.0.2, 10.0.0.3, … in the
// order of first use. A listener of any address hears what is sent to all of them.
class WEFT_API network {
 public:
  struct options {
    // Of a connect, of each part of a stream and of each datagram, in virtual time. Drawn by the
    // seed, as is everything here.
    std::chrono::nanoseconds min_delay{0}, max_delay{1'000'000};
    bool partial = true;             // reads and writes often take only a part
    double resets = 0;               // the chance of a write to reset its connection
    double losses = 0;               // of a datagram of UDP to be lost; they overtake one another
    std::size_t window = 64 * 1024;  // bytes that nobody has read, before writes wait
  };

  // std::logic_error outside a bubble, and if it has one already; std::invalid_argument.
  network();
  explicit network(const options& o);
  network(const network&) = delete;
  network& operator=(const network&) = delete;
  ~network();  // connections that are there go on

 private:
  std::shared_ptr<detail::memory_network> impl_;
};

// Both ends of a connection of this bubble's network, which there must be (std::logic_error).
WEFT_API std::pair<net::conn, net::conn> pipe();

}  // namespace weft::testing
