// SPDX-License-Identifier: Apache-2.0
// See memory.h. Two things here are more than a system call:
//
// - advise_ranges. process_madvise on ourselves takes a whole list, but which kernels take which
//   advice, and by which name for 'ourselves', has changed often (and containers filter the call).
//   So nothing is looked up: the best way is tried, the plain madvise of the same range is the
//   referee, and a way that failed where madvise did not is given up for the rest of the process.
//   A pidfd is opened and closed again per call: a kept one would still name the parent in the
//   child of a fork.
// - explain_exhaustion. mmap's ENOMEM has at least five causes, and the user can only act on one
//   that is named.
//
// mmap and its kin go through the C library (plain wrappers, no lock) so that sanitizers see them;
// the calls that would be cancellation points (open, read, close) are made raw.
//
// Runs on any stack.
#include "os/memory.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/chaos.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

namespace weft::rt {
namespace {

class errno_keeper {
 public:
  errno_keeper() noexcept : saved_(errno) {}
  ~errno_keeper() { errno = saved_; }
  errno_keeper(const errno_keeper&) = delete;
  errno_keeper& operator=(const errno_keeper&) = delete;

 private:
  int saved_;
};

void* ptr(std::uintptr_t a) noexcept { return reinterpret_cast<void*>(a); }

// The error of a call that returned r.
int error_of(long r) noexcept { return r < 0 ? errno : 0; }

mapping map(std::size_t bytes, int prot, int flags) noexcept {
  if (const int err = chaos::fault("mmap"); err != 0) return {0, err};
  errno_keeper keep;
  void* p = ::mmap(nullptr, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (p == MAP_FAILED) return {0, errno};
  return {reinterpret_cast<std::uintptr_t>(p), 0};
}

// The start of a small file as text; empty if it cannot be read.
std::string_view read_start(const char* path, char* buf, std::size_t size) noexcept {
  const long fd = ::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::size_t n = 0;
  while (n < size) {
    const long k = ::syscall(SYS_read, fd, buf + n, size - n);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) break;
    n += static_cast<std::size_t>(k);
  }
  ::syscall(SYS_close, fd);
  return {buf, n};
}

// The n-th number (from 0) in a text.
std::uint64_t number(std::string_view s, int n) noexcept {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0;
  for (;; --n) {
    while (i < s.size() && !digit(s[i])) ++i;
    if (i == s.size()) return 0;
    std::uint64_t v = 0;
    while (i < s.size() && digit(s[i])) v = v * 10 + static_cast<std::uint64_t>(s[i++] - '0');
    if (n == 0) return v;
  }
}

std::uint64_t number_after(std::string_view s, std::string_view name) noexcept {
  const std::size_t at = s.find(name);
  if (at == s.npos) return 0;
  s.remove_prefix(at + name.size());
  return number(s, 0);
}

// Is `limit` what keeps us from `bytes` more, with `pages` in use? Then says so.
bool explain_limit(printer& out, int limit, const char* name, std::uint64_t pages,
                   std::size_t bytes) noexcept {
  rlimit l{};
  if (::getrlimit(static_cast<__rlimit_resource>(limit), &l) != 0 || l.rlim_cur == RLIM_INFINITY)
    return false;
  const std::uint64_t used = pages * page_size();
  if (used + bytes <= l.rlim_cur) return false;
  out << name << " allows " << std::uint64_t{l.rlim_cur / 1024} << " KiB, of which " << used / 1024
      << " KiB are in use";
  return true;
}

enum batch_way : int { by_self, by_pidfd, one_by_one };
atomic<int> batch_by{by_self};  // only ever grows; a stale read costs one more failed call

constexpr int pidfd_self = -10000;  // PIDFD_SELF, Linux 6.14

// process_madvise on ourselves: bytes advised, or -errno.
long advise_batch(int way, const iovec* v, std::size_t n, int advice) noexcept {
  if (const int err = chaos::fault("process_madvise"); err != 0) return -err;
  long fd = pidfd_self;
  if (way == by_pidfd) {
    fd = ::syscall(SYS_pidfd_open, ::getpid(), 0);
    if (fd < 0) return -errno;
  }
  long r = ::syscall(SYS_process_madvise, fd, v, n, advice, 0);
  if (r < 0) r = -errno;
  if (way == by_pidfd) ::syscall(SYS_close, fd);
  return r;
}

}  // namespace

std::size_t page_size() noexcept {
  static constinit atomic<std::size_t> known{0};  // sysconf is a large switch
  std::size_t n = known.load(memory_order_relaxed);
  if (n == 0) {
    n = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    known.store(n, memory_order_relaxed);
  }
  return n;
}

mapping map_memory(std::size_t bytes) noexcept { return map(bytes, PROT_READ | PROT_WRITE, 0); }

mapping map_reserved(std::size_t bytes) noexcept {
  return map(bytes, PROT_NONE, MAP_NORESERVE | MAP_STACK);
}

int unmap(memory_range r) noexcept {
  if (const int err = chaos::fault("munmap"); err != 0) return err;
  errno_keeper keep;
  return error_of(::munmap(ptr(r.addr), r.bytes));
}

int allow_access(memory_range r) noexcept {
  if (const int err = chaos::fault("mprotect"); err != 0) return err;
  errno_keeper keep;
  return error_of(::mprotect(ptr(r.addr), r.bytes, PROT_READ | PROT_WRITE));
}

int forbid_access(memory_range r) noexcept {
  if (const int err = chaos::fault("mprotect"); err != 0) return err;
  errno_keeper keep;
  return error_of(::mprotect(ptr(r.addr), r.bytes, PROT_NONE));
}

int unlock_memory(memory_range r) noexcept {
  errno_keeper keep;
  // Raw: sanitizers turn the wrapper into nothing.
  return error_of(::syscall(SYS_munlock, r.addr, r.bytes));
}

int advise(memory_range r, int advice) noexcept {
  if (const int err = chaos::fault("madvise"); err != 0) return err;
  errno_keeper keep;
  return error_of(::madvise(ptr(r.addr), r.bytes, advice));
}

int advise_ranges(const memory_range* r, std::size_t n, int advice, std::size_t* done) noexcept {
  errno_keeper keep;
  constexpr std::size_t most = 32;
  iovec v[most];
  std::size_t i = 0;
  while (i < n) {
    const int way = batch_by.load(memory_order_relaxed);
    const std::size_t k = std::min(n - i, most);
    int batch_err = 0;
    if (way != one_by_one && k > 1) {
      for (std::size_t j = 0; j < k; ++j) v[j] = {ptr(r[i + j].addr), r[i + j].bytes};
      const long got = advise_batch(way, v, k, advice);
      if (got > 0) {
        // Stops at the first range that fails; that one is tried again below, by itself, for its
        // error.
        auto left = static_cast<std::size_t>(got);
        std::size_t j = 0;
        while (j < k && left >= r[i + j].bytes) left -= r[i + j++].bytes;
        i += j;
        if (j > 0) continue;
      }
      batch_err = got < 0 ? static_cast<int>(-got) : 0;
    }
    if (const int err = advise(r[i], advice); err != 0) {
      *done = i;
      return err;
    }
    ++i;
    const bool passing =
        batch_err == 0 || batch_err == EINTR || batch_err == EAGAIN || batch_err == ENOMEM;
    if (!passing) {
      int expected = way;
      batch_by.compare_exchange_strong(expected, way + 1, memory_order_relaxed);
    }
  }
  *done = n;
  return 0;
}

std::size_t resident_pages(memory_range r) noexcept {
  errno_keeper keep;
  unsigned char in[512];
  const std::size_t page = page_size();
  std::size_t count = 0;
  for (std::size_t at = 0; at < r.bytes; at += sizeof in * page) {
    const std::size_t bytes = std::min(r.bytes - at, sizeof in * page);
    if (::mincore(ptr(r.addr + at), bytes, in) != 0) continue;
    for (std::size_t i = 0; i < (bytes + page - 1) / page; ++i) count += in[i] & 1U;
  }
  return count;
}

bool is_readable(std::uintptr_t addr) noexcept {
  errno_keeper keep;
  // The kernel copies the new mask in before it looks at `how`, which is no valid one: EFAULT if it
  // cannot be read, EINVAL if it can. Nothing is changed either way.
  constexpr int no_such_how = 99;
  constexpr std::uintptr_t mask_bytes = 8;  // aligned, so that they lie in the page of addr
  addr &= ~(mask_bytes - 1);
  return ::syscall(SYS_rt_sigprocmask, no_such_how, addr, nullptr, mask_bytes) != -1 ||
         errno != EFAULT;
}

std::size_t count_mappings() noexcept {
  errno_keeper keep;
  const long fd = ::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char buf[2048];
  std::size_t lines = 0;
  for (;;) {
    const long k = ::syscall(SYS_read, fd, buf, sizeof buf);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) break;
    lines += static_cast<std::size_t>(std::count(buf, buf + k, '\n'));
  }
  ::syscall(SYS_close, fd);
  return lines;
}

std::size_t max_map_count() noexcept {
  errno_keeper keep;
  char buf[32];
  const std::uint64_t n = number(read_start("/proc/sys/vm/max_map_count", buf, sizeof buf), 0);
  return n == 0 ? 65530 : static_cast<std::size_t>(n);
}

void explain_exhaustion(printer& out, std::size_t bytes, int err) noexcept {
  errno_keeper keep;
  char buf[2048];
  if (err == EAGAIN) {  // only MCL_FUTURE makes mmap say so
    rlimit l{};
    ::getrlimit(RLIMIT_MEMLOCK, &l);
    out << "mlockall(MCL_FUTURE) is in force and RLIMIT_MEMLOCK (ulimit -l) allows only "
        << std::uint64_t{l.rlim_cur / 1024} << " KiB";
    return;
  }
  const std::string_view statm = read_start("/proc/self/statm", buf, sizeof buf);
  const std::uint64_t total = number(statm, 0);
  const std::uint64_t data = number(statm, 5);
  if (explain_limit(out, RLIMIT_AS, "RLIMIT_AS (ulimit -v)", total, bytes)) return;
  if (explain_limit(out, RLIMIT_DATA, "RLIMIT_DATA (ulimit -d)", data, bytes)) return;
  const std::size_t maps = count_mappings();
  const std::size_t most = max_map_count();
  if (maps + 2 >= most) {
    out << "vm.max_map_count allows " << most << " mappings, of which " << maps << " are in use";
    return;
  }
  if (number(read_start("/proc/sys/vm/overcommit_memory", buf, sizeof buf), 0) == 2) {
    const std::string_view meminfo = read_start("/proc/meminfo", buf, sizeof buf);
    out << "strict overcommit (vm.overcommit_memory=2) allows "
        << number_after(meminfo, "CommitLimit:") << " KiB, of which "
        << number_after(meminfo, "Committed_AS:") << " KiB are promised";
    return;
  }
  out << "the kernel refused with errno " << err;
}

}  // namespace weft::rt
