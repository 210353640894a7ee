// SPDX-License-Identifier: Apache-2.0
// Who runs next where a seed decides: any of those who are here, with equal chances. One that
// yields goes behind all who are here already, and those keep their order among each other: it has
// promised everybody else a turn.
//
// Nothing but the calls and the generator decides: no address, no time. Memory comes from mmap (see
// page_array); takes no lock, its owner does. Runs on any stack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/page_array.h"
#include "base/random.h"

namespace weft::rt {

struct G;

class seeded_order {
 public:
  bool empty() const noexcept { return free_.size() == 0 && head_ == behind_.size(); }

  void add(G* g) noexcept { free_.push({g, ++tickets_}); }
  void add_behind(G* g) noexcept {
    if (empty_behind()) {
      behind_.clear();
      head_ = 0;
      before_ = free_.size();
    }
    behind_.push({g, ++tickets_});
  }
  G* take(random& rng) noexcept {  // null: nobody is here
    const std::size_t n = free_.size() + (may_take_behind() ? 1 : 0);
    if (n == 0) return nullptr;
    const std::size_t i = n == 1 ? 0 : rng.below(static_cast<std::uint32_t>(n));
    if (i == free_.size()) return take_behind();
    const entry e = free_[i];
    free_[i] = free_[free_.size() - 1];
    free_.pop();
    if (!empty_behind() && e.ticket < behind_[head_].ticket) --before_;
    return e.g;
  }
  template <class F>
  void for_each(F f) const {
    for (std::size_t i = 0; i < free_.size(); ++i) f(free_[i].g);
    for (std::size_t i = head_; i < behind_.size(); ++i) f(behind_[i].g);
  }
  void clear() noexcept {
    free_.clear();
    behind_.clear();
    head_ = before_ = 0;
    tickets_ = 0;
  }

 private:
  struct entry {
    G* g;
    std::uint64_t ticket;  // in the order of coming
  };
  bool empty_behind() const noexcept { return head_ == behind_.size(); }
  // The first of those who yielded, once all who were here before it are gone.
  bool may_take_behind() const noexcept { return !empty_behind() && before_ == 0; }
  G* take_behind() noexcept {
    G* g = behind_[head_++].g;
    before_ = 0;
    if (empty_behind()) return g;
    for (std::size_t i = 0; i < free_.size(); ++i)
      before_ += free_[i].ticket < behind_[head_].ticket ? 1 : 0;
    return g;
  }

  page_array<entry> free_;    // in no order
  page_array<entry> behind_;  // from head_, first come, first served
  std::size_t head_ = 0;
  std::size_t before_ = 0;  // of free_: here before the first of behind_
  std::uint64_t tickets_ = 0;
};

}  // namespace weft::rt
