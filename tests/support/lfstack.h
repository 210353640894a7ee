// SPDX-License-Identifier: Apache-2.0
// A lock-free stack (last in, first out) in one 64-bit word: 48 bits of pointer and a 16-bit tag
// that every push raises, so that a pop which read `next` of a node that has since been popped and
// pushed again fails its CAS (the ABA problem).
//
// Nodes are type-stable: a pop may read `next` of a node that is no longer on the stack, so a node
// stays a node as long as the stack is used. That read may meet another owner's write, hence
// atomic. The tag repeats after 65 536 pushes of one node within one pop; a pop that sleeps that
// long and finds the same node with the same tag may still go wrong, which 16 bits make unlikely,
// not impossible.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::test {

struct lfnode {
  std::atomic<std::uint64_t> next{0};  // packed
  std::uint64_t pushes = 0;            // owner's: raised before each push
};

class lfstack {
 public:
  void push(lfnode* n) noexcept {
    const std::uint64_t mine = pack(n, ++n->pushes);
    std::uint64_t old = head_.load(std::memory_order_relaxed);
    do {
      n->next.store(old, std::memory_order_relaxed);
      // Release: the node's contents are seen by whoever pops it (acquire in pop).
    } while (!head_.compare_exchange_weak(old, mine, std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  lfnode* pop() noexcept {
    return pop([] {});
  }
  // between(): where another may change everything, for tests.
  template <class F>
  lfnode* pop(F between) noexcept {
    std::uint64_t old = head_.load(std::memory_order_acquire);
    for (;;) {
      lfnode* n = unpack(old);
      if (n == nullptr) return nullptr;
      const std::uint64_t next = n->next.load(std::memory_order_relaxed);
      between();
      // Acquire: with push. A failed look at a node needs it too, to read its `next`.
      if (head_.compare_exchange_weak(old, next, std::memory_order_acquire,
                                      std::memory_order_acquire)) {
        return n;
      }
    }
  }

  bool empty() const noexcept { return head_.load(std::memory_order_relaxed) == 0; }

 private:
  static constexpr int pointer_bits = 48;
  static constexpr std::uint64_t pointer_mask = (1ULL << pointer_bits) - 1;
  static std::uint64_t pack(lfnode* n, std::uint64_t tag) noexcept {
    return reinterpret_cast<std::uintptr_t>(n) | tag << pointer_bits;
  }
  static lfnode* unpack(std::uint64_t w) noexcept {
    return reinterpret_cast<lfnode*>(w & pointer_mask);
  }

  std::atomic<std::uint64_t> head_{0};
};

}  // namespace weft::test
