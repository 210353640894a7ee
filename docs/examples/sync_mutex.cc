// SPDX-License-Identifier: Apache-2.0
// An example of docs/sync.md.
#include <cassert>
#include <mutex>
#include <thread>
#include <weft/weft.hpp>

weft::mutex mu;  // constant-initialised: may be static, may be used before and after run
long balance = 0;

void deposit(long n) {
  std::lock_guard hold(mu);
  balance += n;
}

int main() {
  return weft::run([] {
    std::thread t([] { deposit(100); });  // plain threads and goroutines alike
    weft::wait_group wg;
    for (int i = 0; i < 10; ++i) wg.go([] { deposit(1); });
    wg.wait();
    t.join();
    assert(balance == 110);

    std::unique_lock held(mu);
    assert(!mu.try_lock_for(std::chrono::milliseconds(1)));
    weft::go([] { mu.unlock(); });  // whoever unlocks need not have locked
    held.release();
    mu.lock();
    mu.unlock();
  });
}
