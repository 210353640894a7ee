// SPDX-License-Identifier: Apache-2.0
// operator new and delete that count, and fail on demand, for the whole program. The array forms of
// the library call these, and so would the nothrow form, but ASan has one of its own, whose memory
// free() refuses.
#include "support/allocations.h"

#include <cstdlib>
#include <malloc.h>
#include <new>

namespace weft::test {

constinit allocation_count live_allocations;

namespace {

constinit thread_local int until_failure = -1;

// Not inlined: a goroutine may call it, on one thread and then on another.
[[gnu::noinline]] bool fails_now() noexcept { return until_failure >= 0 && until_failure-- == 0; }

void* counted(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  if (fails_now()) {
    std::free(p);
    throw std::bad_alloc();
  }
  live_allocations.objects.fetch_add(1, std::memory_order_relaxed);
  live_allocations.bytes.fetch_add(static_cast<std::int64_t>(::malloc_usable_size(p)),
                                   std::memory_order_relaxed);
  return p;
}

void release(void* p) noexcept {
  if (p == nullptr) return;
  live_allocations.objects.fetch_sub(1, std::memory_order_relaxed);
  live_allocations.bytes.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(p)),
                                   std::memory_order_relaxed);
  std::free(p);
}

}  // namespace

void fail_allocation(int after) noexcept { until_failure = after; }
bool allocation_failed() noexcept { return until_failure < 0; }

}  // namespace weft::test

void* operator new(std::size_t n) { return weft::test::counted(std::malloc(n != 0 ? n : 1)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  try {
    return operator new(n);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(std::size_t n, std::align_val_t a) {
  const auto align = static_cast<std::size_t>(a);
  return weft::test::counted(std::aligned_alloc(align, (n + align - 1) / align * align));
}
void operator delete(void* p) noexcept { weft::test::release(p); }
void operator delete(void* p, std::size_t) noexcept { weft::test::release(p); }
void operator delete(void* p, std::align_val_t) noexcept { weft::test::release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { weft::test::release(p); }
