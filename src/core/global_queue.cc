// SPDX-License-Identifier: Apache-2.0
// See global_queue.h. Runs on any stack, under the scheduler lock.
#include "core/global_queue.h"

#include <cstring>

namespace weft::rt {

void global_queue::push(G* const* gs, std::uint32_t n) noexcept {
  std::uint32_t left = n;
  while (left > 0) {
    if (tail_ == nullptr || tail_->last == block::capacity) {
      block* b = blocks_.allocate();
      b->next = nullptr;
      b->first = b->last = 0;
      (tail_ == nullptr ? head_ : tail_->next) = b;
      tail_ = b;
    }
    const std::uint32_t room = block::capacity - tail_->last;
    const std::uint32_t k = left < room ? left : room;
    std::memcpy(tail_->gs + tail_->last, gs, k * sizeof *gs);
    tail_->last += k;
    gs += k;
    left -= k;
  }
  size_.store(size_.load(memory_order_relaxed) + n, memory_order_seq_cst);
}

std::uint32_t global_queue::pop(G** out, std::uint32_t n) noexcept {
  std::uint32_t got = 0;
  while (got < n && head_ != nullptr) {
    block* b = head_;
    const std::uint32_t have = b->last - b->first;
    const std::uint32_t k = n - got < have ? n - got : have;
    std::memcpy(out + got, b->gs + b->first, k * sizeof *out);
    b->first += k;
    got += k;
    if (b->first == b->last) {
      head_ = b->next;
      if (head_ == nullptr) tail_ = nullptr;
      blocks_.release(b);
    }
  }
  size_.store(size_.load(memory_order_relaxed) - got, memory_order_seq_cst);
  return got;
}

}  // namespace weft::rt
