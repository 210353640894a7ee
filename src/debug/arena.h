// SPDX-License-Identifier: Apache-2.0
// Memory for dumps: taken from the kernel in blocks, given back all at once. Neither malloc nor a
// lock, so that it serves in a stopped world and in a dying process too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <type_traits>

#include "base/fatal.h"
#include "os/memory.h"

namespace weft::rt {

class arena {
 public:
  arena() noexcept = default;
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() {
    while (blocks_ != nullptr) {
      block* b = blocks_;
      blocks_ = b->next;
      unmap({reinterpret_cast<std::uintptr_t>(b), b->bytes});
    }
  }

  // Zeroed. Null when the kernel has no more.
  void* raw(std::size_t bytes) noexcept {
    bytes = (bytes + 15) & ~std::size_t{15};
    if (bytes > left_ && !grow(bytes)) return nullptr;
    char* p = free_;
    free_ += bytes;
    left_ -= bytes;
    return p;
  }
  template <class T>
  T* array(std::size_t n) noexcept {
    static_assert(std::is_trivially_destructible_v<T>);
    void* p = raw(n * sizeof(T));
    return p == nullptr ? nullptr : ::new (p) T[n];
  }
  template <class F>
  void for_each_block(F f) const {
    for (const block* b = blocks_; b != nullptr; b = b->next)
      f(reinterpret_cast<std::uintptr_t>(b), b->bytes);
  }
  // A copy with a zero behind it.
  const char* copy(std::string_view s) noexcept {
    char* p = static_cast<char*>(raw(s.size() + 1));
    if (p == nullptr) return "";
    std::memcpy(p, s.data(), s.size());
    p[s.size()] = '\0';
    return p;
  }

 private:
  struct block {
    block* next;
    std::size_t bytes;
  };
  static constexpr std::size_t usual = 1 << 20;

  bool grow(std::size_t bytes) noexcept {
    const std::size_t page = page_size();
    std::size_t n = bytes + sizeof(block) + 16;
    n = n < usual ? usual : (n + page - 1) / page * page;
    const mapping m = map_memory(n);
    if (!m) return false;
    auto* b = ::new (reinterpret_cast<void*>(m.addr)) block{blocks_, n};
    blocks_ = b;
    free_ = reinterpret_cast<char*>(b + 1);
    left_ = n - sizeof(block);
    return true;
  }

  block* blocks_ = nullptr;
  char* free_ = nullptr;
  std::size_t left_ = 0;
};

// A list of T in an arena: grows by pieces, is walked in order.
template <class T, std::size_t Piece = 256>
class arena_list {
 public:
  T* push(arena& a, const T& v) noexcept {
    if (last_ == nullptr || last_->n == Piece) {
      auto* p = a.array<piece>(1);
      if (p == nullptr) return nullptr;
      (last_ == nullptr ? first_ : last_->next) = p;
      last_ = p;
    }
    ++size_;
    return &(last_->items[last_->n++] = v);
  }
  std::size_t size() const noexcept { return size_; }
  template <class F>
  void for_each(F f) const {
    for (piece* p = first_; p != nullptr; p = p->next) {
      for (std::size_t i = 0; i < p->n; ++i) f(p->items[i]);
    }
  }

 private:
  struct piece {
    piece* next = nullptr;
    std::size_t n = 0;
    T items[Piece];
  };
  piece* first_ = nullptr;
  piece* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace weft::rt
