// SPDX-License-Identifier: Apache-2.0
// A race that one seed in a few shows, and the same seed shows again.
#include <cassert>
#include <cstdio>
#include <mutex>
#include <optional>
#include <weft/weft.hpp>

class account {
 public:
  explicit account(int euros) : euros_(euros) {}
  int balance() {
    const std::lock_guard hold(m_);
    return euros_;
  }
  void take(int n) {
    const std::lock_guard hold(m_);
    euros_ -= n;
  }
  bool take_if_there(int n) {
    const std::lock_guard hold(m_);
    if (euros_ < n) return false;
    euros_ -= n;
    return true;
  }

 private:
  weft::mutex m_;
  int euros_;
};

// Each call is safe, the two together are not: another may take between them.
void withdraw(account& a, int n) {
  if (a.balance() >= n) a.take(n);
}
void withdraw_in_one(account& a, int n) { a.take_if_there(n); }

// What is left when two want 80 of 100 at once.
int left_by_two(std::uint64_t seed, void (*withdraw)(account&, int)) {
  return weft::testing::bubble(seed, [=] {
    account a(100);
    weft::wait_group both;
    for (int i = 0; i < 2; ++i) both.go([&] { withdraw(a, 80); });
    both.wait();
    return a.balance();
  });
}

int main() {
  std::optional<std::uint64_t> bad;
  int fine = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    if (left_by_two(seed, withdraw) == 20) {
      ++fine;
    } else if (!bad) {
      bad = seed;
    }
  }
  assert(bad && fine > 0);  // most runs see nothing, but not all
  std::printf("overdrawn with seed %ju\n", static_cast<std::uintmax_t>(*bad));
  for (int again = 0; again < 100; ++again) assert(left_by_two(*bad, withdraw) == -60);
  for (std::uint64_t seed = 0; seed < 200; ++seed) assert(left_by_two(seed, withdraw_in_one) == 20);
}
