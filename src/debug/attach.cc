// SPDX-License-Identifier: Apache-2.0
// debug::attach: the answers (answers.h) on a Unix socket that only the same user can open, for the
// tool `weft`. attach_path.h says where it lies.
//
// Who may come in, three times over: the directory is ours and closed to others, so is the socket,
// and the kernel says who has connected (SO_PEERCRED). The directory is checked before it is used:
// /tmp is everybody's, and somebody may have put a link or a directory of his own there.
//
// Left-overs: whatever bears our name is not in use, since a PID in a namespace is one process's at
// a time; it is replaced. Those of other processes that have died are swept away, under a lock of
// the directory (flock), under which sockets are made too: a PID may be given out again between the
// look and the removal. The socket is removed at exit and by a fatal report; a process that is
// killed leaves it.
//
// The child of a fork is not the process that the socket is about: it neither answers
// (answering.cc) nor removes it.
//
// Runs on the caller's stack: a plain thread's, or a goroutine's.
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "base/print.h"
#include "debug/answers.h"
#include "debug/attach.h"
#include "debug/attach_path.h"
#include "sched/waiter.h"
#include "weft/debug.hpp"

namespace weft::debug {
namespace {

struct {
  rt::parking_lock lock;  // one call of attach at a time
  rt::atomic<pid_t> owner{0};
  char path[attach_path::longest + 1] = {};  // set before owner
} constinit attached;

[[noreturn]] void refuse(int err, const std::string& why) {
  throw std::system_error(err, std::generic_category(), "debug::attach: " + why);
}

struct descriptor {
  int fd;
  explicit descriptor(int f) noexcept : fd(f) {}
  ~descriptor() {
    if (fd >= 0) ::close(fd);
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
};

// Not inline: the address of errno must not be kept over a wait.
[[gnu::noinline]] std::string make_directory(uid_t uid) {
  std::string dir = attach_path::in_tmp(uid);
  if (const char* base = ::secure_getenv("XDG_RUNTIME_DIR"); base != nullptr && *base == '/') {
    const std::string in = attach_path::in_runtime_dir(base);
    if (attach_path::wrong_with(base, uid).empty() && attach_path::fits(in)) dir = in;
  }
  if (::mkdir(dir.c_str(), 0700) == 0) {
    ::chmod(dir.c_str(), 0700);  // whatever the umask is
  } else if (errno != EEXIST) {
    refuse(errno, dir);
  }
  if (const std::string wrong = attach_path::wrong_with(dir, uid); !wrong.empty())
    refuse(EPERM, wrong);
  return dir;
}

// Removes what processes of our namespace that have died left behind.
void sweep(int dir, std::uint64_t space) {
  const int fd = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* list = fd >= 0 ? ::fdopendir(fd) : nullptr;
  if (list == nullptr) {
    if (fd >= 0) ::close(fd);
    return;
  }
  while (const dirent* e = ::readdir(list)) {
    attach_path::name n;
    if (attach_path::parse(e->d_name, n) && n.space == space && ::kill(n.pid, 0) != 0 &&
        errno == ESRCH)
      ::unlinkat(dir, e->d_name, 0);
  }
  ::closedir(list);
}

// True: the lock of the directory is ours. Whoever has it is about to give it back, unless somebody
// has stopped it: then we go on without, and sweep nothing.
bool lock_directory(int dir) noexcept {
  for (int i = 0; i < 100; ++i) {
    if (::flock(dir, LOCK_EX | LOCK_NB) == 0) return true;
    ::usleep(1000);
  }
  return false;
}

// A listening socket at `path`, which it fills in.
[[gnu::noinline]] int listen_at(const std::string& dir, char* path) {
  const attach_path::name own = attach_path::own_name();
  const std::string at = dir + '/' + own.text();
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  at.copy(a.sun_path, attach_path::longest);
  const descriptor d(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (d.fd < 0) refuse(errno, dir);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) refuse(errno, "no socket");
  if (lock_directory(d.fd)) sweep(d.fd, own.space);
  ::unlink(at.c_str());
  ::fchmod(fd, 0600);  // Linux makes the file with the mode that the socket has
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0 ||
      ::chmod(at.c_str(), 0600) != 0 || ::listen(fd, 16) != 0) {
    const int err = errno;
    ::close(fd);
    refuse(err, at);
  }
  at.copy(path, attach_path::longest);
  return fd;
}

bool is_same_user(int client) noexcept {
  ucred peer{};
  socklen_t n = sizeof peer;
  return ::getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
         (peer.uid == 0 || peer.uid == ::geteuid());
}

void start() {
  const pid_t owner = attached.owner.load(rt::memory_order_relaxed);
  if (owner == ::getpid()) return;
  if (owner != 0) throw std::logic_error("debug::attach called in the child of a fork");
  const int fd = listen_at(make_directory(::geteuid()), attached.path);
  if (const int err = start_answering(fd, is_same_user, "weft-attach"); err != 0) {
    ::close(fd);
    ::unlink(attached.path);
    refuse(err, "no thread");
  }
  attached.owner.store(::getpid(), rt::memory_order_release);  // with remove_attach_socket
  std::atexit(rt::remove_attach_socket);
  std::at_quick_exit(rt::remove_attach_socket);
}

}  // namespace

std::string attach() {
  attached.lock.lock(rt::wait_reason::internal);
  struct unlocker {
    ~unlocker() { attached.lock.unlock(); }
  } const unlock;
  start();
  return attached.path;
}

}  // namespace weft::debug

namespace weft::rt {

// Async-signal-safe: a fatal report calls it too.
void remove_attach_socket() noexcept {
  if (debug::attached.owner.load(memory_order_acquire) == ::getpid())
    ::unlink(debug::attached.path);
}

void attach_or_warn() noexcept {
  try {
    debug::attach();
  } catch (const std::exception& e) {
    printer(2) << "weft: " << std::string_view(e.what()) << "\n";
  }
}

}  // namespace weft::rt
