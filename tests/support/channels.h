// SPDX-License-Identifier: Apache-2.0
// What tests of channels and select share: pauses, goroutines known to be parked, and goroutines
// that may stay blocked for ever.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "core/current.h"
#include "core/g.h"
#include "support/runtime.h"
#include "weft/chan.hpp"
#include "weft/select.hpp"

namespace weft::test {

// Parks a goroutine; a plain thread sleeps.
inline void pause(std::chrono::nanoseconds d) { weft::select(weft::timeout(d)); }

// Whether somebody stands in a queue of the channel; read as the hints are.
template <class C>
bool sender_waits(const C& c) {  // unbuffered, open
  return !detail::chan_access::core(c)->looks_empty();
}
template <class C>
bool receiver_waits(const C& c) {  // unbuffered, open
  return !detail::chan_access::core(c)->looks_full();
}

// A goroutine that may never end: how far it has come is kept apart from any stack.
class watched {
 public:
  template <class F>
  explicit watched(F f) : s_(std::make_shared<state>()) {
    weft::go([s = s_, f = std::move(f)]() mutable {
      s->g = rt::current_g();
      f();
      s->done = true;
    });
  }
  bool done() const { return s_->done; }
  bool parked() const {
    const rt::G* g = s_->g;
    return g != nullptr && !s_->done && g->state() == rt::g_status::waiting;
  }
  bool wait_parked() const {
    return eventually([this] { return parked(); });
  }
  bool wait_done() const {
    return eventually([this] { return done(); });
  }

 private:
  struct state {
    std::atomic<rt::G*> g{nullptr};
    std::atomic<bool> done{false};
  };
  std::shared_ptr<state> s_;
};

}  // namespace weft::test
