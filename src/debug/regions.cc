// SPDX-License-Identifier: Apache-2.0
// See regions.h. /proc/self/maps says what there is, /proc/self/pagemap which pages were touched.
#include "debug/regions.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "debug/cfi.h"
#include "os/memory.h"

namespace weft::rt {
namespace {

// No libc wrapper: those are cancellation points.
long open_read(const char* path) noexcept {
  return ::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
}

// One line of maps: "lo-hi rwxp offset dev inode   path".
class line {
 public:
  explicit line(std::string_view text) noexcept : rest_(text) {}
  std::uint64_t number(unsigned base) noexcept {
    std::uint64_t v = 0;
    std::size_t i = 0;
    for (; i < rest_.size(); ++i) {
      const char c = rest_[i];
      const unsigned d = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                         : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a' + 10)
                                                : 99;
      if (d >= base) break;
      v = v * base + d;
    }
    rest_.remove_prefix(i);
    return v;
  }
  void skip(std::size_t n) noexcept { rest_.remove_prefix(std::min(n, rest_.size())); }
  std::string_view word() noexcept {
    skip_spaces();
    const std::size_t n = std::min(rest_.find(' '), rest_.size());
    const std::string_view w = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return w;
  }
  std::string_view path() noexcept {
    skip_spaces();
    return rest_;
  }

 private:
  void skip_spaces() noexcept { skip(std::min(rest_.find_first_not_of(' '), rest_.size())); }
  std::string_view rest_;
};

// *guard_end: where the last mapping that nobody can use has ended.
bool parse(std::string_view text, region* out, std::uintptr_t* guard_end) noexcept {
  line l(text);
  out->lo = l.number(16);
  l.skip(1);
  out->hi = l.number(16);
  const std::string_view access = l.word();
  l.word();  // offset
  l.word();  // device
  const std::string_view inode = l.word(), path = l.path();
  if (access.starts_with("---")) *guard_end = out->hi;
  if (access.size() < 4 || access[0] != 'r') return false;
  out->stack = path == "[stack]" || out->lo == *guard_end;
  const bool of_file = inode != "0", is_shared = access[3] == 's';
  // What cannot be written now may have been once, unless it is a file's.
  if (access[1] != 'w' && (of_file || path.starts_with("[v"))) return false;
  out->sparse = !of_file && !is_shared;
  out->what = path == "[heap]"                            ? region::kind::heap
              : of_file && !is_shared && access[1] == 'w' ? region::kind::data
                                                          : region::kind::other;
  // A ring of aio: the kernel has more of what lies in it.
  out->device =
      path.starts_with("/[aio]") || (path.starts_with("/dev/") && !path.starts_with("/dev/zero") &&
                                     !path.starts_with("/dev/shm/"));
  return true;
}

}  // namespace

int errno_now() noexcept { return errno; }
void set_errno(int value) noexcept { errno = value; }

bool list_regions(arena& memory, arena_list<region>& out) noexcept {
  const int saved = errno;
  const long fd = open_read("/proc/self/maps");
  if (fd < 0) {
    errno = saved;
    return false;
  }
  constexpr std::size_t room = 64 * 1024;
  auto* buf = static_cast<char*>(memory.raw(room));
  bool ok = buf != nullptr;
  std::size_t have = 0;
  std::uintptr_t guard_end = 0;
  while (ok) {
    const long k = ::syscall(SYS_read, fd, buf + have, room - have);
    if (k < 0 && errno == EINTR) continue;
    ok = k >= 0;
    if (k <= 0) break;
    have += static_cast<std::size_t>(k);
    std::size_t at = 0;
    for (;;) {
      const auto* end = static_cast<const char*>(std::memchr(buf + at, '\n', have - at));
      if (end == nullptr) break;
      region r;
      if (parse({buf + at, static_cast<std::size_t>(end - (buf + at))}, &r, &guard_end))
        ok = out.push(memory, r) != nullptr && ok;
      at = static_cast<std::size_t>(end - buf) + 1;
    }
    std::memmove(buf, buf + at, have - at);
    have -= at;
    ok = ok && have < room;
  }
  ::syscall(SYS_close, fd);
  errno = saved;
  return ok;
}

region_reader::region_reader(arena& memory) noexcept
    : words_(memory.array<std::uintptr_t>(piece / sizeof(std::uintptr_t))),
      pages_(memory.array<std::uint64_t>(pages_at_once)),
      pagemap_(open_read("/proc/self/pagemap")) {}

region_reader::~region_reader() {
  const int saved = errno;
  if (pagemap_ >= 0) ::syscall(SYS_close, pagemap_);
  errno = saved;
}

// Where the kernel has no such call, or forbids it, by hand.
WEFT_READS_STACKS static long copy_by_hand(std::uintptr_t* to, std::uintptr_t from,
                                           std::size_t bytes) noexcept {
  if (!is_readable(from)) return -EFAULT;
  const std::size_t page = page_size();
  bytes = std::min(bytes, page - from % page);
  for (std::size_t i = 0; i < bytes / sizeof *to; ++i)
    to[i] = reinterpret_cast<const volatile std::uintptr_t*>(from)[i];
  return static_cast<long>(bytes);
}

long region_reader::copy(std::uintptr_t from, std::size_t bytes) noexcept {
  const iovec to{words_, bytes}, at{reinterpret_cast<void*>(from), bytes};
  const long k = ::syscall(SYS_process_vm_readv, ::getpid(), &to, 1, &at, 1, 0);
  if (k >= 0) return k;
  return errno == EFAULT ? -EFAULT : copy_by_hand(words_, from, bytes);
}

void region_reader::read_all(std::uintptr_t lo, std::uintptr_t hi, see_fn see, void* to) noexcept {
  const std::size_t page = page_size();
  while (lo < hi) {
    const long k = copy(lo, std::min<std::size_t>(hi - lo, piece));
    if (k <= 0) {  // nobody can read it: a guard, or gone
      lo = (lo & ~(page - 1)) + page;
      continue;
    }
    const auto n = static_cast<std::size_t>(k) / sizeof(std::uintptr_t);
    if (n == 0) return;
    see(to, words_, n);
    lo += n * sizeof(std::uintptr_t);
  }
}

const std::uintptr_t* region_reader::peek(std::uintptr_t at, std::size_t bytes,
                                          std::size_t* got) noexcept {
  *got = 0;
  if (words_ == nullptr) return nullptr;
  const int saved = errno;
  const long k = copy(at, std::min(bytes, piece));
  errno = saved;
  if (k > 0) *got = static_cast<std::size_t>(k) & ~(sizeof(std::uintptr_t) - 1);
  return words_;
}

bool region_reader::read(const region& r, std::uintptr_t lo, std::uintptr_t hi, see_fn see,
                         void* to) noexcept {
  if (words_ == nullptr || pages_ == nullptr) return false;
  constexpr std::size_t most = std::size_t{1} << 38, most_of_file = std::size_t{1} << 32;
  constexpr std::uintptr_t aligned = sizeof(std::uintptr_t) - 1;
  lo = (lo + aligned) & ~aligned;
  hi &= ~aligned;
  if (lo >= hi) return true;
  if (r.device || hi - lo > (r.sparse && pagemap_ >= 0 ? most : most_of_file)) return false;
  const int saved = errno_now();
  const std::size_t page = page_size();
  if (!r.sparse || pagemap_ < 0 || hi - lo < 4 * page) {
    read_all(lo, hi, see, to);
    set_errno(saved);
    return true;
  }
  constexpr std::uint64_t touched = 3ULL << 62;  // in memory, or swapped out
  std::uintptr_t begin = 0;                      // of a run of touched pages; 0: none
  for (std::uintptr_t at = lo & ~(page - 1); at < hi;) {
    const std::size_t n = std::min((hi - at + page - 1) / page, pages_at_once);
    const long k = ::syscall(SYS_pread64, pagemap_, pages_, n * sizeof *pages_,
                             static_cast<off_t>(at / page * sizeof *pages_));
    const std::size_t got = k > 0 ? static_cast<std::size_t>(k) / sizeof *pages_ : 0;
    for (std::size_t i = 0; i < (got == 0 ? n : got); ++i, at += page) {
      const bool in = got == 0 || (pages_[i] & touched) != 0;  // not known: as if it were
      if (in && begin == 0) begin = std::max(at, lo);
      if (!in && begin != 0) {
        read_all(begin, at, see, to);
        begin = 0;
      }
    }
  }
  if (begin != 0) read_all(begin, hi, see, to);
  set_errno(saved);
  return true;
}

}  // namespace weft::rt
