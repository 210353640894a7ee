// SPDX-License-Identifier: Apache-2.0
// weft::local. In a goroutine the values hang on its G; on a plain thread on a thread_local that is
// destroyed with the thread.
//
// A local has a slot while it lives: a number, which the next one gets when it has gone, and how
// often that has happened, which makes the number a key that is never given out twice. An owner
// finds its values by number in a hash table (open addressing; numbers are small and dense, so the
// number is its own hash). A value whose local has gone is found when its number is used again, and
// destroyed then: an owner has at most as many values as there were ever locals at one time.
//
// Runs on the goroutine's own stack; allocates, so never called from the scheduler. What a
// destructor may do (use locals, park) it may do here: it is called when all is in order again.
#include "sched/locals.h"

#include <memory>
#include <new>
#include <utility>

#include "core/current.h"
#include "os/mutex.h"
#include "weft/go.hpp"

namespace weft::detail {

struct local_slot {
  std::uint64_t key;  // the number, and above it how often it was given back
  local_slot* next_free;
};

}  // namespace weft::detail

namespace weft::rt {

namespace {

struct value {
  std::uint64_t key;
  void* object;
  void (*destroy)(void*);
  value *older, *newer;

  std::uint32_t number() const noexcept { return static_cast<std::uint32_t>(key); }
};

void end(value* v) noexcept {
  v->destroy(v->object);
  delete v;
}

}  // namespace

class local_table {
 public:
  local_table() = default;
  ~local_table() {
    if (at_ != few_) delete[] at_;
  }
  local_table(const local_table&) = delete;
  local_table& operator=(const local_table&) = delete;

  void* find(std::uint64_t key) const noexcept {
    const value* v = *place_of(static_cast<std::uint32_t>(key));
    return v != nullptr && v->key == key ? v->object : nullptr;
  }

  // Room for one more, and a load of one half at most.
  void reserve() {
    if (2 * (used_ + 1) <= mask_ + 1) return;
    const std::uint32_t wider = 2 * (mask_ + 1);
    value** const old = std::exchange(
        at_, new value* [wider] {});
    const std::uint32_t n = std::exchange(mask_, wider - 1) + 1;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (old[i] != nullptr) *place_of(old[i]->number()) = old[i];
    }
    if (old != few_) delete[] old;
  }

  // After reserve. Returns one whose local has gone. A value of the same local, made by an init
  // that has used its own, is known from somewhere and stays until the end.
  value* add(value* v) noexcept {
    value*& here = *place_of(v->number());
    value* old = std::exchange(here, v);
    used_ += old == nullptr ? 1 : 0;
    v->older = newest_;
    if (newest_ != nullptr) newest_->newer = v;
    newest_ = v;
    if (old == nullptr || old->key == v->key) return nullptr;
    unlink(old);
    return old;
  }

  value* take(std::uint64_t key) noexcept {
    value** here = place_of(static_cast<std::uint32_t>(key));
    value* v = *here;
    if (v == nullptr || v->key != key) return nullptr;
    clear(static_cast<std::uint32_t>(here - at_));
    unlink(v);
    return v;
  }

  value* take_newest() noexcept {
    value* v = newest_;
    if (v == nullptr) return nullptr;
    if (value** here = place_of(v->number()); *here == v)
      clear(static_cast<std::uint32_t>(here - at_));
    newest_ = v->older;
    if (newest_ != nullptr) newest_->newer = nullptr;
    return v;
  }

 private:
  value** place_of(std::uint32_t number) const noexcept {
    std::uint32_t i = number & mask_;
    while (at_[i] != nullptr && at_[i]->number() != number) i = (i + 1) & mask_;
    return &at_[i];
  }

  // Those behind it that would not be found over the gap move up.
  void clear(std::uint32_t gap) noexcept {
    for (std::uint32_t i = (gap + 1) & mask_; at_[i] != nullptr; i = (i + 1) & mask_) {
      const std::uint32_t home = at_[i]->number() & mask_;
      if (((i - home) & mask_) < ((i - gap) & mask_)) continue;
      at_[gap] = at_[i];
      gap = i;
    }
    at_[gap] = nullptr;
    --used_;
  }

  void unlink(value* v) noexcept {
    (v->newer != nullptr ? v->newer->older : newest_) = v->older;
    if (v->older != nullptr) v->older->newer = v->newer;
  }

  static constexpr std::uint32_t few = 8;
  value* few_[few] = {};
  value** at_ = few_;
  std::uint32_t mask_ = few - 1, used_ = 0;
  value* newest_ = nullptr;
};

namespace {

void destroy(local_table*& table) noexcept {
  while (value* v = table->take_newest()) end(v);  // a destructor may make new values
  delete std::exchange(table, nullptr);
}

struct of_thread {
  local_table* table = nullptr;
  ~of_thread() {
    if (table != nullptr) destroy(table);
  }
};
thread_local of_thread plain;

// The address is used up before anything can switch.
__attribute__((noinline)) local_table*& table_of_thread() noexcept { return plain.table; }

local_table*& current_table() noexcept {
  G* g = current_g();
  return g != nullptr ? g->locals : table_of_thread();
}

constinit mutex slots_lock{lock_rank::leaf};
constinit detail::local_slot* free_slots = nullptr;
constinit std::uint32_t next_number = 0;

}  // namespace

void destroy_locals(G* g) noexcept { destroy(g->locals); }

}  // namespace weft::rt

namespace weft::detail {

using namespace rt;

local_slot* take_local_slot() {
  slots_lock.lock();
  local_slot* s = free_slots;
  if (s != nullptr) free_slots = s->next_free;
  const std::uint32_t number = s == nullptr ? next_number++ : 0;
  slots_lock.unlock();
  return s != nullptr ? s : new local_slot{number, nullptr};
}

void give_local_slot(local_slot* s) noexcept {
  remove_local(s);
  slots_lock.lock();
  s->key += std::uint64_t{1} << 32;
  s->next_free = std::exchange(free_slots, s);
  slots_lock.unlock();
}

void* find_local(const local_slot* s) noexcept {
  const local_table* t = current_table();
  return t != nullptr ? t->find(s->key) : nullptr;
}

void add_local(const local_slot* s, void* object, void (*destroy)(void*)) {
  local_table*& t = current_table();
  if (t == nullptr) t = new local_table;
  t->reserve();
  if (value* old = t->add(new value{s->key, object, destroy, nullptr, nullptr})) end(old);
}

void remove_local(const local_slot* s) noexcept {
  local_table* t = current_table();
  if (t == nullptr) return;
  if (value* v = t->take(s->key)) end(v);
}

}  // namespace weft::detail
