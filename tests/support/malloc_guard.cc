// SPDX-License-Identifier: Apache-2.0
// Linked into the test programs of dev builds: malloc and its kin abort when they are called in
// scheduler context, where a preempted goroutine may hold malloc's lock (DESIGN 2.3). glibc's own
// entries do the work.
#if defined(WEFT_DEV) && !defined(WEFT_ASAN) && !defined(WEFT_TSAN)

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <unistd.h>

extern "C" {
bool weft_in_scheduler() noexcept;
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

static void check(const char* what) {
  if (!weft_in_scheduler()) return;
  static const char text[] = "fatal error: called in scheduler context: ";
  (void)!write(2, text, sizeof text - 1);
  (void)!write(2, what, strlen(what));
  (void)!write(2, "\n", 1);
  std::abort();
}

void* malloc(std::size_t n) {
  check("malloc");
  return __libc_malloc(n);
}
void* calloc(std::size_t n, std::size_t k) {
  check("calloc");
  return __libc_calloc(n, k);
}
void* realloc(void* p, std::size_t n) {
  check("realloc");
  return __libc_realloc(p, n);
}
void free(void* p) {
  check("free");
  __libc_free(p);
}
void* memalign(std::size_t a, std::size_t n) {
  check("memalign");
  return __libc_memalign(a, n);
}
void* aligned_alloc(std::size_t a, std::size_t n) {
  check("aligned_alloc");
  return __libc_memalign(a, n);
}
int posix_memalign(void** out, std::size_t a, std::size_t n) {
  check("posix_memalign");
  *out = __libc_memalign(a, n);
  return *out != nullptr ? 0 : ENOMEM;
}
}
#endif
