// SPDX-License-Identifier: Apache-2.0
// object_pool: objects that are used again instead of being made anew. Go's sync.Pool.
//
//   weft::object_pool<buffer> buffers([] { return std::make_unique<buffer>(); });
//   auto b = buffers.get();    // one that somebody has put back, else a new one
//   ...
//   buffers.put(std::move(b));
//
// Which one get() gives is not promised, nor that anything put is ever got again. Each P has its
// own, so that goroutines do not meet; what one has too much of, others take.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <weft/detail/spawn.hpp>

namespace weft {

namespace detail {

struct pool_block;
struct pool_foreign;

// The type-erased half: a bag of pointers.
class WEFT_API pool_core {
 public:
  using drop_fn = void (*)(void*) noexcept;
  constexpr pool_core() noexcept = default;
  pool_core(const pool_core&) = delete;
  pool_core& operator=(const pool_core&) = delete;

  void* get() noexcept;               // null: there is none
  void put(void* v);                  // not null; throws std::bad_alloc, and v is not taken
  void trim(drop_fn drop) noexcept;   // what has not been used since the last call is dropped
  void clear(drop_fn drop) noexcept;  // everything, with nobody else there; it is empty then

 private:
  struct impl;
  static constexpr std::uint32_t block_count = 32;  // of 32 Ps each
  std::atomic<pool_block*> blocks_[block_count]{};
  std::atomic<pool_foreign*> foreign_{nullptr};  // for threads without a P
  std::atomic<std::uint32_t> now_{0};            // which of two generations is in use
  std::atomic<bool> aged_{false};                // there may be something in the other
};

}  // namespace detail

template <class T>
class object_pool {
 public:
  using pointer = std::unique_ptr<T>;

  object_pool() noexcept = default;  // get() gives null when there is none
  // make() gives a T, a T* that is handed over, or a std::unique_ptr<T>. It need not be copyable.
  template <class F>
  requires std::invocable<F&>
  explicit object_pool(F make)
      : make_([f = std::make_shared<F>(std::move(make))]() -> pointer {
          using R = std::remove_cvref_t<std::invoke_result_t<F&>>;
          if constexpr (std::is_convertible_v<R, pointer>) {
            return (*f)();
          } else if constexpr (std::is_same_v<R, T*>) {
            return pointer((*f)());
          } else {
            return std::make_unique<T>((*f)());
          }
        }) {}
  object_pool(const object_pool&) = delete;
  object_pool& operator=(const object_pool&) = delete;
  ~object_pool() { core_.clear(drop); }

  pointer get() {
    if (void* v = core_.get()) return pointer(static_cast<T*>(v));
    return make_ ? make_() : pointer();
  }
  void put(pointer p) {
    if (p == nullptr) return;
    core_.put(p.get());
    (void)p.release();
  }
  // For when memory is short, or from a ticker: what has been put and not been got since the call
  // before is destroyed. So two calls in a row empty it.
  void trim() { core_.trim(drop); }

 private:
  static void drop(void* v) noexcept { delete static_cast<T*>(v); }
  detail::pool_core core_;
  std::function<pointer()> make_;
};

}  // namespace weft
