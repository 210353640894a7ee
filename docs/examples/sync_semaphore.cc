// SPDX-License-Identifier: Apache-2.0
// An example of docs/sync.md.
#include <atomic>
#include <cassert>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    weft::semaphore memory(8);  // gigabytes
    std::atomic<int> used{0};
    weft::wait_group wg;
    for (int job = 0; job < 20; ++job) {
      wg.go([&, need = 1 + job % 4] {
        memory.acquire(need);  // in order of arrival, large and small
        assert((used += need) <= 8);
        weft::yield();
        used -= need;
        memory.release(need);
      });
    }
    wg.wait();
    assert(memory.try_acquire(8));
    assert(!memory.try_acquire_for(std::chrono::milliseconds(1)));
  });
}
