// SPDX-License-Identifier: Apache-2.0
// SYN-10: how often operator new is called by repeated calls of once_func and once_value.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "weft/sync.hpp"

static int count = 0;

void* operator new(std::size_t n) {
  ++count;
  if (void* p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

int main() {
  const auto f = weft::once_func([] {});
  const auto v = weft::once_value([] { return std::string(100, 'x'); });
  f();
  std::size_t sum = v().size();
  const int before = count;
  for (int i = 0; i < 100; ++i) {
    f();
    sum += v().size();
  }
  std::printf("%d allocations\n", count - before);
  return sum == 101 * 100 ? 0 : 1;
}
