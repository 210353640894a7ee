// SPDX-License-Identifier: Apache-2.0
// Who wants which signal. registry.cc has the algorithm.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "weft/detail/spawn.hpp"

namespace weft::detail {

// A set of signals: bit n - 1 is signal n.
using signal_set = std::uint64_t;
// An empty list is all of them. Throws std::invalid_argument for a signal that cannot be had.
signal_set signal_set_of(std::initializer_list<int> list);

// One who wants signals. It is in the registry between subscribe() and unsubscribe().
class signal_subscriber {
 public:
  signal_subscriber(const signal_subscriber&) = delete;
  signal_subscriber& operator=(const signal_subscriber&) = delete;

  void subscribe(signal_set wanted);  // throws std::system_error: no thread
  // When it has returned, deliver is neither running nor will it run. From anywhere, as often as
  // you like.
  void unsubscribe() noexcept;

 protected:
  // sig has come n times. Under the registry's lock (rank `signals`): may take locks of higher
  // rank and wake; must not park, allocate, free, or run user code.
  using deliver_fn = void (*)(signal_subscriber*, int sig, std::uint32_t n) noexcept;
  // Afterwards, on the service thread, without a lock, if deliver said call_later(this): may do
  // anything that a plain thread may. Whoever says so sees to it that the object lives until then.
  using later_fn = void (*)(signal_subscriber*) noexcept;

  constexpr explicit signal_subscriber(deliver_fn d, later_fn later = nullptr) noexcept
      : deliver_(d), later_(later) {}
  ~signal_subscriber() = default;

  static void call_later(signal_subscriber* s) noexcept;  // once until it is called

 private:
  friend struct signal_registry;
  // -- under the lock
  signal_set wanted_ = 0;  // none: not in the list
  signal_subscriber* next_ = nullptr;
  signal_subscriber** back_ = nullptr;
  signal_subscriber* due_next_ = nullptr;
  const deliver_fn deliver_;
  const later_fn later_;
};

}  // namespace weft::detail
