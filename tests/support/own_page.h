// SPDX-License-Identifier: Apache-2.0
// An object on a page of its own, which goes with it: a touch that comes late ends the program, in
// every build.
#pragma once

#include <memory>
#include <new>
#include <sys/mman.h>
#include <utility>

namespace weft::test {

inline constexpr std::size_t own_page_size = 4096;

struct drop_page {
  template <class T>
  void operator()(T* p) const noexcept {
    p->~T();
    ::munmap(p, own_page_size);
  }
};

template <class T, class... A>
std::unique_ptr<T, drop_page> on_own_page(A&&... a) {
  static_assert(sizeof(T) <= own_page_size);
  void* p =
      ::mmap(nullptr, own_page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return std::unique_ptr<T, drop_page>(::new (p) T(std::forward<A>(a)...));
}

}  // namespace weft::test
