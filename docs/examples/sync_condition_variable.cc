// SPDX-License-Identifier: Apache-2.0
// An example of docs/sync.md.
#include <cassert>
#include <deque>
#include <mutex>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    weft::mutex mu;
    weft::condition_variable not_empty;
    std::deque<int> queue;

    weft::go([&] {
      for (int i = 1; i <= 3; ++i) {
        std::lock_guard hold(mu);
        queue.push_back(i);
        not_empty.notify_one();
      }
    });

    int sum = 0;
    for (int i = 0; i < 3; ++i) {
      std::unique_lock lock(mu);
      not_empty.wait(lock, [&] { return !queue.empty(); });
      sum += queue.front();
      queue.pop_front();
    }
    assert(sum == 6);

    std::unique_lock lock(mu);
    assert(!not_empty.wait_for(lock, std::chrono::milliseconds(1), [&] { return !queue.empty(); }));
  });
}
