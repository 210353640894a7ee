// SPDX-License-Identifier: Apache-2.0
// Mutexes, condition variables and the gates: what they protect is a plain number.
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <shared_mutex>

#include <weft/context.hpp>
#include <weft/map.hpp>
#include <weft/pool.hpp>
#include <weft/sync.hpp>
#include <weft/time.hpp>

#include "soak/soak.h"

namespace weft::soak {
namespace {

std::uint64_t mutexes(lane& l) {
  mutex m;
  shared_mutex rw;
  std::uint64_t plain = 0, shared = 0, locked = 0;  // locked, plain: under m; shared: under rw
  std::atomic<std::uint64_t> written{0}, torn{0};
  wait_group wg;
  constexpr std::uint32_t each = 100;
  const std::uint32_t n = 2 + l.r.below(5);
  for (std::uint32_t i = 0; i < n; ++i) {
    wg.go([&, seed = l.r.next()] {
      rt::random r(seed);
      for (std::uint32_t k = 0; k < each; ++k) {
        switch (r.below(5)) {
          case 0:
            if (m.try_lock_for(std::chrono::microseconds(r.below(200)))) {
              ++plain, ++locked;
              m.unlock();
            }
            break;
          case 1: {
            const std::unique_lock hold(rw);
            ++shared;
            ++written;
            if (r.below(20) == 0) weft::yield();
            break;
          }
          case 2: {
            const std::shared_lock hold(rw);
            const std::uint64_t before = shared;
            if (r.below(20) == 0) weft::yield();
            if (before != shared) ++torn;
            break;
          }
          default: {
            const std::lock_guard hold(m);
            ++plain, ++locked;
            if (r.below(30) == 0) weft::yield();
          }
        }
      }
    });
  }
  wg.wait();
  l.check(plain == locked && shared == written, "a lock that two had");
  l.check(torn == 0, "a writer beside a reader");
  return n * each;
}

// A bounded queue over two conditions, with waits that give up.
std::uint64_t conditions(lane& l) {
  mutex m;
  condition_variable not_empty, not_full;
  std::deque<std::uint64_t> queue;
  bool over = false;
  std::uint64_t sum = 0;
  wait_group producers, consumers;
  const std::uint64_t each = 50 + l.r.below(100);
  const auto [ctx, cancel] = with_cancel(background());
  for (int i = 0; i < 2; ++i) {
    producers.go([&] {
      for (std::uint64_t v = 1; v <= each; ++v) {
        std::unique_lock lock(m);
        not_full.wait(lock, [&] { return queue.size() < 4; });
        queue.push_back(v);
        not_empty.notify_one();
      }
    });
  }
  for (int i = 0; i < 3; ++i) {
    consumers.go([&, i, ctx = ctx] {
      std::unique_lock lock(m);
      const auto ready = [&] { return !queue.empty() || over; };
      for (;;) {
        if (i == 0) {
          not_empty.wait(lock, ready);
        } else if (i == 1) {
          if (!not_empty.wait_for(lock, 300us, ready)) continue;
        } else if (!not_empty.wait(lock, ctx, ready)) {
          return;  // cancelled
        }
        if (queue.empty()) return;
        sum += queue.front();
        queue.pop_front();
        not_full.notify_one();
      }
    });
  }
  producers.wait();
  if (l.chance(2)) cancel();
  {
    const std::lock_guard hold(m);
    over = true;
  }
  not_empty.notify_all();
  consumers.wait();
  for (const std::uint64_t v : queue) sum += v;
  l.check(sum == each * (each + 1), "the sum over a condition variable");
  return 4 * each;
}

std::uint64_t semaphores(lane& l) {
  const std::ptrdiff_t permits = 1 + static_cast<std::ptrdiff_t>(l.r.below(4));
  semaphore s(permits);
  std::atomic<std::ptrdiff_t> inside{0};
  std::atomic<bool> too_many{false};
  wait_group wg;
  for (int i = 0; i < 6; ++i) {
    wg.go([&, seed = l.r.next()] {
      rt::random r(seed);
      for (int k = 0; k < 40; ++k) {
        const std::ptrdiff_t n = 1 + r.below(static_cast<std::uint32_t>(permits));
        if (k % 4 == 0) {
          if (!s.try_acquire_for(std::chrono::microseconds(r.below(200)), n)) continue;
        } else if (k % 4 == 1) {
          const auto [ctx, cancel] =
              with_timeout(background(), std::chrono::microseconds(r.below(300)));
          const std::error_code e = s.acquire(ctx, n);
          cancel();
          if (e) continue;
        } else {
          s.acquire(n);
        }
        if ((inside += n) > permits) too_many = true;
        if (r.below(10) == 0) weft::yield();
        inside -= n;
        s.release(n);
      }
    });
  }
  wg.wait();
  l.check(!too_many, "more permits than there are");
  l.check(s.try_acquire(permits), "a permit was lost");
  return 240;
}

// Latch, barrier, once, wait_group: destroyed as soon as the wait is over.
std::uint64_t gates(lane& l) {
  const int n = 2 + static_cast<int>(l.r.below(6));
  std::atomic<int> arrived{0}, completed{0}, firsts{0};
  {
    latch ready(n);
    wait_group wg;
    for (int i = 0; i < n; ++i) {
      wg.go([&] {
        ++arrived;
        ready.count_down();
      });
    }
    ready.wait();
    l.check(arrived == n, "a latch opened early");
    wg.wait();
  }
  {
    const auto count = [&completed]() noexcept { ++completed; };
    barrier<decltype(count)> b(n, count);
    std::atomic<int> wrong{0};
    wait_group wg;
    for (int i = 0; i < n; ++i) {
      wg.go([&] {
        for (int phase = 1; phase <= 10; ++phase) {
          b.arrive_and_wait();
          if (completed < phase) ++wrong;
        }
      });
    }
    wg.wait();
    l.check(wrong == 0 && completed == 10, "a barrier let one through early");
  }
  {
    once first;
    const auto value = once_value([&] { return ++firsts; });
    wait_group wg;
    for (int i = 0; i < n; ++i) {
      wg.go([&] {
        first.call([&] { ++firsts; });
        (void)value();
      });
    }
    wg.wait();
    l.check(firsts == 2, "once was twice");
  }
  return static_cast<std::uint64_t>(n) * 13;
}

std::uint64_t map_and_pool(lane& l) {
  concurrent_map<std::uint32_t, std::uint64_t> map;
  object_pool<std::uint64_t> pool([] { return std::make_unique<std::uint64_t>(7); });
  std::atomic<int> wrong{0};
  wait_group wg;
  for (int i = 0; i < 4; ++i) {
    wg.go([&, seed = l.r.next()] {
      rt::random r(seed);
      for (int k = 0; k < 100; ++k) {
        const std::uint32_t key = r.below(32);
        if (r.below(3) == 0) map.store(key, key * 3);
        if (const auto v = map.load(key); v && *v != key * 3) ++wrong;
        auto p = pool.get();
        if (*p != 7) ++wrong;
        if (r.below(10) == 0) weft::yield();
        pool.put(std::move(p));
      }
    });
  }
  wg.wait();
  l.check(wrong == 0, "a map or a pool gave something else");
  return 800;
}

}  // namespace

std::span<const workload> sync_workloads() {
  static constexpr workload all[] = {
      {"mutex", 2, mutexes}, {"cond", 2, conditions},       {"semaphore", 1, semaphores},
      {"gates", 1, gates},   {"map_pool", 1, map_and_pool},
  };
  return all;
}

}  // namespace weft::soak
