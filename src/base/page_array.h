// SPDX-License-Identifier: Apache-2.0
// An array that grows by doubling its pages, for scheduler context: no malloc. Elements are copied
// as bytes. It keeps its memory; its owner is never destroyed (type-stable, DESIGN 3).
#pragma once

#include <cerrno>
#include <cstddef>
#include <sys/mman.h>
#include <type_traits>

#include "base/chaos.h"
#include "base/fatal.h"

namespace weft::rt {

template <class T>
class page_array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  constexpr page_array() noexcept = default;
  page_array(const page_array&) = delete;
  page_array& operator=(const page_array&) = delete;

  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t i) noexcept { return items_[i]; }
  const T& operator[](std::size_t i) const noexcept { return items_[i]; }
  void push(const T& x) noexcept {
    if (size_ == capacity_) grow();
    items_[size_++] = x;
  }
  void pop() noexcept { --size_; }
  void clear() noexcept { size_ = 0; }

 private:
  void grow() noexcept {
    constexpr std::size_t first_bytes = 4096;
    const std::size_t old = bytes_;
    bytes_ = old == 0 ? first_bytes : 2 * old;
    const int saved = errno;
    if (const int err = chaos::fault("mremap"); err != 0)
      fatal_errno("out of memory: cannot grow an array", err);
    void* p = old == 0 ? ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                       : ::mremap(items_, old, bytes_, MREMAP_MAYMOVE);
    if (p == MAP_FAILED) fatal_errno("out of memory: cannot grow an array", errno);
    errno = saved;
    items_ = static_cast<T*>(p);
    capacity_ = bytes_ / sizeof(T);
  }
  T* items_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0, bytes_ = 0;
};

}  // namespace weft::rt
