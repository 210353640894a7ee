// SPDX-License-Identifier: Apache-2.0
// A plain thread that knows nothing of phases: it sends, locks, waits and sleeps by weft's means
// while there is a run, while there is none, and at the very moment at which one begins or ends.
// Goroutines of whatever run receive; at the end what it has sent is what they, and who empties the
// channel after them, have got.
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include <weft/chan.hpp>
#include <weft/go.hpp>
#include <weft/select.hpp>
#include <weft/sync.hpp>
#include <weft/time.hpp>

#include "soak/soak.h"

namespace weft::soak {
namespace {

struct outside {
  chan<std::uint64_t> values{4};
  chan<void> stop;
  mutex m;
  std::uint64_t under_m = 0, locked = 0;  // both under m
  std::atomic<std::uint64_t> received{0};
  std::uint64_t sent = 0;  // the thread's until it has ended
  std::thread thread;

  void live(std::uint64_t seed) {
    rt::random r(seed);
    for (std::uint64_t v = 1; stop.try_recv() == recv_status::empty; ++v) {
      switch (r.below(5)) {
        case 0:
          if (values.send_for(v, std::chrono::microseconds(r.below(2000))) == send_status::ok)
            sent += v;
          break;
        case 1: {
          const std::lock_guard hold(m);
          ++under_m;
          ++locked;
          break;
        }
        case 2:
          weft::sleep_for(std::chrono::microseconds(r.below(500)));
          break;
        case 3:
          (void)after(std::chrono::microseconds(r.below(300))).recv();
          break;
        case 4:
          weft::select(weft::send(values, v, [&] { sent += v; }), weft::recv(stop),
                       weft::timeout(1ms));
          break;
      }
    }
  }
};
std::unique_ptr<outside> out;

}  // namespace

void start_outsider(std::uint64_t seed) {
  out = std::make_unique<outside>();
  out->thread = std::thread([seed] { out->live(seed); });
}

std::uint64_t outsider_step(lane& l) {
  std::uint64_t v = 0, n = 0;
  for (int i = 0; i < 20; ++i) {
    if (out->values.recv_for(v, std::chrono::microseconds(l.r.below(3000))) == recv_status::ok) {
      out->received += v;
      ++n;
    }
    const std::lock_guard hold(out->m);
    ++out->under_m;
    ++out->locked;
    if (i % 8 == 0) weft::yield();
  }
  return n;
}

void stop_outsider() {
  out->stop.close();
  out->thread.join();
  std::uint64_t left = 0;
  for (std::uint64_t v = 0; out->values.try_recv(v) == recv_status::ok;) left += v;
  if (out->sent != out->received + left) fail("outsider: what it sent is not what was received");
  if (out->under_m != out->locked) fail("outsider: a lock that two had");
  out.reset();
}

}  // namespace weft::soak
