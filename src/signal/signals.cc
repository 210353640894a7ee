// SPDX-License-Identifier: Apache-2.0
// signals: a subscriber with a channel. A signal that finds it full is dropped, so nobody ever
// waits for a reader.
//
// Runs on the caller's stack; deliver under the registry's lock.
#include "weft/signal.hpp"

#include <memory>

#include "signal/registry.h"

namespace weft {
namespace detail {

class signal_channel final : public signal_subscriber {
 public:
  static constexpr int room = 64;
  signal_channel() : signal_subscriber(&deliver) {}
  // In no bubble: a thread of the runtime's sends.
  chan<int> to = chan_access::adopt<chan<int>>(chan_ref(chan_core::make(room, ops_of<int>, 0)));

 private:
  static void deliver(signal_subscriber* s, int sig, std::uint32_t n) noexcept {
    const auto& to = static_cast<signal_channel*>(s)->to;
    while (n-- != 0 && to.try_send(sig)) {
    }
  }
};

}  // namespace detail

signals::signals(std::initializer_list<int> list) : s_(nullptr) {
  const detail::signal_set wanted = detail::signal_set_of(list);
  auto s = std::make_unique<detail::signal_channel>();
  c = s->to;
  s->subscribe(wanted);
  s_ = s.release();
}

signals& signals::operator=(signals&& o) noexcept {
  signals from(std::move(o));  // first: o may be *this
  std::swap(c, from.c);
  std::swap(s_, from.s_);
  return *this;
}

signals::~signals() {
  stop();
  delete s_;
}

void signals::stop() noexcept {
  if (s_ != nullptr) s_->unsubscribe();
}

}  // namespace weft
