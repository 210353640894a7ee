// SPDX-License-Identifier: Apache-2.0
// See kernel_words.h. /proc/self/fd says what descriptors there are, fdinfo what an epoll set
// holds, /proc/self/timers what the timers do. Requests of io_uring cannot be seen at all, nor what
// lies in a pipe or a socket of the process without taking it out: with those, nobody knows. Our
// own ring has none while no errand is under way, of which the caller makes sure.
#include "debug/kernel_words.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file/uring.h"

namespace weft::rt {
namespace {

struct entry {  // linux_dirent64
  std::uint64_t inode;
  std::int64_t next;
  unsigned short bytes;
  unsigned char type;
  char name[1];
};

class kernel_look {
 public:
  kernel_look(arena& memory, region_reader::see_fn see, void* to) noexcept
      : memory_(memory), see_(see), to_(to), buf_(static_cast<char*>(memory.raw(room))) {}

  bool all() noexcept {
    auto* names = static_cast<char*>(memory_.raw(room));
    if (buf_ == nullptr || names == nullptr) return false;
    // Each timer says "signal: number/value"; a kernel without the file has no way to tell.
    read_marked(AT_FDCWD, "/proc/self/timers", "signal: ", '/');
    const long fds = open_in(AT_FDCWD, "/proc/self/fd");
    const long infos = open_in(AT_FDCWD, "/proc/self/fdinfo");
    bool known = fds >= 0 && infos >= 0;
    long k = 0;
    while (known && (k = ::syscall(SYS_getdents64, fds, names, room)) > 0) {
      for (long at = 0; at < k && known;) {
        entry e;
        std::memcpy(&e, names + at, offsetof(entry, name));
        known = descriptor(fds, infos, names + at + offsetof(entry, name));
        at += e.bytes;
      }
    }
    if (fds >= 0) ::syscall(SYS_close, fds);
    if (infos >= 0) ::syscall(SYS_close, infos);
    return known && k >= 0 && !talks_to_itself();
  }

 private:
  static constexpr std::size_t room = 32 * 1024;
  static constexpr std::size_t none = std::string_view::npos;

  static long open_in(long dir, const char* path) noexcept {
    return ::syscall(SYS_openat, dir, path, O_RDONLY | O_CLOEXEC);
  }

  static int number(std::string_view s) noexcept {
    int v = 0;
    for (char c : s) {
      if (c < '0' || c > '9') break;
      v = v * 10 + (c - '0');
    }
    return v;
  }

  bool descriptor(long fds, long infos, const char* name) noexcept {
    if (name[0] < '0' || name[0] > '9') return true;  // . and ..
    char link[64];
    const long n = ::syscall(SYS_readlinkat, fds, name, link, sizeof link);
    if (n <= 0) return true;  // closed meanwhile, by a thread of ours
    const std::string_view what(link, static_cast<std::size_t>(n));
    if (what == "anon_inode:[eventpoll]") return read_marked(infos, name, "data: ", '\0');
    const int fd = number(name);
    if (what == "anon_inode:[io_uring]") return detail::is_uring(fd);
    int unread = 0;
    if (what.starts_with("pipe:[")) {
      const pipe_end p{number(what.substr(6)), ::ioctl(fd, FIONREAD, &unread) == 0 && unread > 0};
      return pipes_.push(memory_, p) != nullptr;
    }
    if (!what.starts_with("socket:[")) return true;
    int domain = 0;
    socklen_t bytes = sizeof domain;
    return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 || domain != AF_UNIX ||
           ::ioctl(fd, FIONREAD, &unread) != 0 || unread == 0;
  }

  // Both ends of a pipe are ours, and something is in it.
  bool talks_to_itself() const noexcept {
    bool any = false;
    pipes_.for_each([&](const pipe_end& full) {
      std::size_t ends = 0;
      if (!full.unread || any) return;
      pipes_.for_each([&](const pipe_end& p) { ends += p.inode == full.inode ? 1 : 0; });
      any = ends > 1;
    });
    return any;
  }

  // Shows the hexadecimal number behind each `mark` in a file, behind `until` if that is not zero.
  bool read_marked(long dir, const char* path, std::string_view mark, char until) noexcept {
    const long fd = open_in(dir, path);
    if (fd < 0) return errno == ENOENT;
    std::size_t have = 0;
    long k = 0;
    while ((k = ::syscall(SYS_read, fd, buf_ + have, room - have)) > 0) {
      have += static_cast<std::size_t>(k);
      std::string_view text(buf_, have);
      for (std::size_t end; (end = text.find('\n')) != none; text.remove_prefix(end + 1))
        show(text.substr(0, end), mark, until);
      have = text.size();
      std::memmove(buf_, text.data(), have);
      if (have == room) break;
    }
    ::syscall(SYS_close, fd);
    return k == 0;
  }

  void show(std::string_view line, std::string_view mark, char until) noexcept {
    std::size_t at = line.find(mark);
    if (at == none) return;
    line.remove_prefix(at + mark.size());
    if (until != '\0') {
      if ((at = line.find(until)) == none) return;
      line.remove_prefix(at + 1);
    }
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    std::uintptr_t v = 0;
    for (char c : line) {
      const unsigned d = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                         : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a' + 10)
                                                : 16;
      if (d == 16) break;
      v = v * 16 + d;
    }
    see_(to_, &v, 1);
  }

  struct pipe_end {
    int inode;
    bool unread;
  };
  arena& memory_;
  region_reader::see_fn see_;
  void* to_;
  char* buf_;
  arena_list<pipe_end> pipes_;
};

}  // namespace

bool see_kernel_words(arena& memory, region_reader::see_fn see, void* to) noexcept {
  const int saved = errno_now();
  const bool known = kernel_look(memory, see, to).all();
  set_errno(saved);
  return known;
}

}  // namespace weft::rt
