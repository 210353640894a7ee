// SPDX-License-Identifier: Apache-2.0
// weft::once: who runs f, and who waits for it. One that waits is woken when f has run, or to run
// it itself because the one before has thrown.
//
// Runs on the caller's stack; finish also while it unwinds.
#include "sync/wait_list.h"
#include "weft/sync.hpp"

namespace weft {

using namespace detail;

bool once::begin() {
  waiting me(this);
  me.mu.lock();
  switch (state_.load(std::memory_order_acquire)) {
    case fresh:
      state_.store(running, std::memory_order_relaxed);
      me.mu.unlock();
      return true;
    case done:
      me.mu.unlock();
      return false;
    default:
      queue_.push_back(&me);
      me.block(rt::wait_reason::sync_mutex_lock);
      return me.granted;
  }
}

void once::finish(bool ok) noexcept {
  wake_chain go;
  rt::mutex& mu = lock_of(this);
  mu.lock();
  if (ok) {
    go.take(queue_.detach());
    // Release: with the acquire in call. The last touch.
    state_.store(done, std::memory_order_release);
  } else if (waiting* w = queue_.front()) {
    queue_.remove(w);
    w->granted = true;  // it runs f now
    go.push(w);
  } else {
    state_.store(fresh, std::memory_order_release);
  }
  mu.unlock();
  go.wake_all();
}

}  // namespace weft
