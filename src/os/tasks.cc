// SPDX-License-Identifier: Apache-2.0
// See tasks.h. The number of entries of /proc/self/task is the only thing that is true at one
// moment: a walk through them may miss a thread that another has made before it ended.
//
// Among them are threads of the kernel's own, the workers of an io_uring. They do what was
// submitted and never run code of the program: nobody's ring wakes a goroutine by itself, because
// what is done is seen by a thread that looks (which counts), by a descriptor (whoever waits for
// one counts), or not at all. They stay for good, or for seconds, after one request. So if there
// are too many threads, workers are looked for, the threads counted again, and the same workers
// looked for again: those that were there both times were there at the moment of the count. A
// worker that is missed makes it one too many, which is on the safe side. It takes 100 µs and more,
// and a program with threads that are not ours is looked at again and again: so only where a ring
// has been made.
#include "os/tasks.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"

namespace weft::rt {
namespace {

constexpr const char* tasks = "/proc/self/task";
constinit atomic<bool> workers_expected{false};

// Each is a directory, which the kernel counts as a link to the one above; `.` and the name itself
// are two more. One call, where the text of /proc/self/stat takes three and the sum of everybody's
// CPU time.
std::uint32_t count_all() noexcept {
  struct stat st;
  if (::stat(tasks, &st) != 0 || st.st_nlink < 3) return 0;
  return static_cast<std::uint32_t>(st.st_nlink - 2);
}

// No libc wrapper below: those are cancellation points.

// Of "number (name) state parent group session tty tty-group flags ...". Before Linux 5.12 the flag
// had another meaning, and the workers were in no process: hence the name too.
bool is_worker(std::string_view stat) noexcept {
  constexpr std::uint64_t io_worker = 0x10;  // PF_IO_WORKER
  const std::size_t name = stat.find(" (iou-");
  if (name == std::string_view::npos || name != stat.find(' ')) return false;
  std::size_t at = stat.find(')');
  for (int field = 0; field < 7 && at != std::string_view::npos; ++field)
    at = stat.find(' ', at + 1);
  if (at == std::string_view::npos) return false;
  std::uint64_t flags = 0;
  for (++at; at < stat.size() && stat[at] >= '0' && stat[at] <= '9'; ++at)
    flags = flags * 10 + static_cast<std::uint64_t>(stat[at] - '0');
  return at < stat.size() && stat[at] == ' ' && (flags & io_worker) != 0;
}

bool is_worker(long dir, const char* tid) noexcept {
  constexpr std::string_view file("/stat", sizeof "/stat");  // the zero too
  char path[32], text[256];
  const std::string_view name(tid);
  if (name.size() + file.size() > sizeof path) return false;
  std::copy(file.begin(), file.end(), std::copy(name.begin(), name.end(), path));
  const long fd = ::syscall(SYS_openat, dir, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const long k = ::syscall(SYS_read, fd, text, sizeof text);
  ::syscall(SYS_close, fd);
  return k > 0 && is_worker(std::string_view(text, static_cast<std::size_t>(k)));
}

struct entry {  // linux_dirent64
  std::uint64_t inode;
  std::int64_t next;
  unsigned short bytes;
  unsigned char type;
  char name[1];
};

struct workers {
  static constexpr std::size_t most = 128;  // twice what one ring of ours may have
  char tid[most][12];
  std::uint32_t n = 0;

  // False: there are more than `others` besides them, or more of them than anybody asked for.
  bool find(long dir, std::uint32_t others) noexcept {
    char names[2048];
    long k = 0;
    while ((k = ::syscall(SYS_getdents64, dir, names, sizeof names)) > 0) {
      for (long at = 0; at < k;) {
        entry e;
        std::memcpy(&e, names + at, offsetof(entry, name));
        const char* name = names + at + offsetof(entry, name);
        at += e.bytes;
        if (name[0] == '.') continue;
        if (!is_worker(dir, name)) {
          if (others-- == 0) return false;
        } else if (n == most || std::strlen(name) >= sizeof tid[0]) {
          return false;
        } else {
          std::memcpy(tid[n++], name, std::strlen(name) + 1);
        }
      }
    }
    return k == 0;
  }
};

// noinline: what it needs of the stack is seldom needed.
[[gnu::noinline]] std::uint32_t count_without_workers(std::uint32_t expected) noexcept {
  const long dir = ::syscall(SYS_openat, AT_FDCWD, tasks, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return 0;
  workers before;
  std::uint32_t threads = 0;
  if (before.find(dir, expected) && before.n != 0) {
    threads = count_all();
    for (std::uint32_t i = 0; i < before.n && threads != 0; ++i)
      threads -= is_worker(dir, before.tid[i]) ? 1 : 0;
  }
  ::syscall(SYS_close, dir);
  return threads;
}

}  // namespace

void expect_workers() noexcept { workers_expected.store(true, memory_order_relaxed); }

std::uint32_t count_threads(std::uint32_t expected) noexcept {
  const std::uint32_t all = count_all();
  if (all <= expected || !workers_expected.load(memory_order_relaxed)) return all;
  const std::uint32_t threads = count_without_workers(expected);
  return threads != 0 ? threads : all;
}

}  // namespace weft::rt
