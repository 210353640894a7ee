// SPDX-License-Identifier: Apache-2.0
// Finding a process's socket by its PID, and talking to it.
//
// The socket's name has the process's PID as it sees itself (debug/attach_path.h); its directory
// may be one that only the process sees (/proc/PID/root). Anybody may have put something of that
// name into /tmp, so a directory must be the process's user's, and the kernel must say that it is
// this PID that listens (SO_PEERCRED). A pidfd, taken before everything else, tells in each wait
// whether the process is still there, and keeps its PID from being another's meanwhile.
#include "process.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "debug/attach_path.h"
#include "failure.h"

namespace weft::tool {
namespace {

std::string called(const facts& f) {
  return "process " + std::to_string(f.pid) + " (" + f.name + ')';
}

// -- sockets

// With who listens there. Errors as errno has them.
descriptor open_socket(const std::string& path, double timeout, ucred& peer, int& error) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  if (path.size() > attach_path::longest) return error = ENAMETOOLONG, descriptor();
  path.copy(a.sun_path, attach_path::longest);
  descriptor s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // connect waits if all threads of the process are busy and others wait already.
  const timeval tv{static_cast<time_t>(std::ceil(timeout)), 0};
  ::setsockopt(s.get(), SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
  socklen_t n = sizeof peer;
  if (!s || ::connect(s.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0 ||
      ::getsockopt(s.get(), SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0)
    return error = errno, descriptor();
  error = 0;
  return s;
}

struct place {
  std::string dir;
  uid_t uid;
};

std::vector<std::string> runtime_dirs(uid_t uid) {
  std::vector<std::string> all;
  if (const char* own = std::getenv("XDG_RUNTIME_DIR"); own != nullptr && *own == '/')
    all.emplace_back(own);
  all.push_back("/run/user/" + std::to_string(uid));
  return all;
}

// Where the socket of a process may lie, likely places first.
std::vector<place> places_of(const facts& f) {
  std::vector<std::string> bases = runtime_dirs(f.uid);
  if (std::string dir = environment_of(f.pid, "XDG_RUNTIME_DIR"); dir.starts_with('/'))
    bases.insert(bases.begin(), std::move(dir));
  std::vector<std::string> dirs;
  for (const std::string& b : bases) dirs.push_back(attach_path::in_runtime_dir(b));
  std::vector<place> all;
  for (const uid_t uid : {f.uid, ::geteuid()}) {  // it may have dropped what it was as root
    std::vector<std::string> here = dirs;
    here.push_back(attach_path::in_tmp(uid));
    for (std::string& d : here) {
      if (has_other_root(f.pid)) all.push_back({proc(f.pid, "root") + d, uid});
      all.push_back({std::move(d), uid});
    }
  }
  return all;
}

[[noreturn]] void not_attached(const facts& f, const std::string& wrong) {
  std::string text;
  if (has_thread(f.pid, "weft-attach")) {
    text = called(f) + " lets itself be looked at, but its socket is not to be found";
  } else if (has_thread(f.pid, "weft-sysmon")) {
    text = "attach is off in " + called(f) +
           "\nStart it with WEFT_DEBUG=attach=1, or have it call weft::debug::attach()";
  } else {
    text = called(f) + " is not a program that uses weft, or has not called weft::run yet";
  }
  if (!wrong.empty()) text += "\n" + wrong;
  throw failure{status::not_attached, text};
}

}  // namespace

descriptor::~descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

// -- connection

// Until the socket is ready. Throws if the process ends first, or nothing comes in time.
void connection::wait(short events, double seconds) const {
  pollfd fds[3] = {{socket_.get(), events, 0}, {alive_.get(), POLLIN, 0}, {interrupt_, POLLIN, 0}};
  const int n = ::poll(fds, 3, static_cast<int>(std::min(seconds, 1e6) * 1000));
  if (n < 0 && errno == EINTR) return wait(events, seconds);
  if (fds[2].revents != 0) throw interrupted{};
  if (fds[0].revents != 0) return;
  if (fds[1].revents != 0) fail_at_end();
  std::string text = "process " + std::to_string(pid_) + " does not answer";
  if (const char s = facts_of(pid_).state; s == 'T' || s == 't') text += ": it is stopped";
  throw failure{status::no_answer, text};
}

void connection::send(std::string_view text) {
  while (!text.empty()) {
    wait(POLLOUT, timeout_);
    const ssize_t n = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return;  // the answer says why
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::string connection::receive(double extra) {
  std::string some(256 * 1024, '\0');
  for (;;) {
    wait(POLLIN, timeout_ + extra);
    const ssize_t n = ::recv(socket_.get(), some.data(), some.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    some.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return some;
  }
}

void connection::fail_at_end() const {
  // A process that dies closes its socket a moment before it is gone.
  pollfd gone{alive_.get(), POLLIN, 0};
  const bool ended = alive_ ? ::poll(&gone, 1, 1000) == 1 : ::kill(pid_, 0) != 0;
  if (ended) throw failure{status::went_away, "process " + std::to_string(pid_) + " has ended"};
  throw failure{status::failed,
                "process " + std::to_string(pid_) + " hung up in the middle of its answer"};
}

// -- target

target::target(pid_t pid, double timeout, int interrupt)
    : pid_(pid),
      timeout_(timeout),
      interrupt_(interrupt),
      alive_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {
  (void)facts_of(pid);  // there is none: says so
}

connection target::connect() const {
  if (alive_) {
    pollfd gone{alive_.get(), POLLIN, 0};
    if (::poll(&gone, 1, 0) == 1)
      throw failure{status::went_away, "process " + std::to_string(pid_) + " has ended"};
  }
  const facts f = facts_of(pid_);
  if (::geteuid() != 0 && f.uid != ::geteuid())
    throw failure{status::not_permitted, called(f) + " is user " + std::to_string(f.uid) +
                                             "'s; only that user and root may look at it"};
  std::string wrong;
  int refused = 0;
  for (const place& p : places_of(f)) {
    struct stat st {};
    if (::lstat(p.dir.c_str(), &st) != 0) continue;
    if (std::string w = attach_path::wrong_with(p.dir, p.uid); !w.empty()) {
      wrong = std::move(w);
      continue;
    }
    for (const std::string& entry : entries(p.dir)) {
      attach_path::name n;
      if (!attach_path::parse(entry, n) || n.pid != f.inner_pid) continue;
      ucred peer{};
      int error = 0;
      descriptor s = open_socket(p.dir + '/' + entry, timeout_, peer, error);
      if (error == EACCES || error == EPERM || error == EAGAIN) refused = error;
      if (s && peer.pid == pid_ && peer.uid == p.uid)
        return {pid_, std::move(s), descriptor(::fcntl(alive_.get(), F_DUPFD_CLOEXEC, 0)),
                interrupt_, timeout_};
    }
  }
  if (refused == EAGAIN) throw failure{status::no_answer, called(f) + " does not answer"};
  if (refused != 0) throw failure{status::not_permitted, called(f) + ": " + std::strerror(refused)};
  not_attached(f, wrong);
}

// -- everybody

std::vector<listed> list_attached() {
  std::vector<place> places;
  const auto add = [&](const std::string& dir, uid_t uid) { places.push_back({dir, uid}); };
  const uid_t self = ::geteuid();
  for (const std::string& b : runtime_dirs(self)) add(attach_path::in_runtime_dir(b), self);
  add(attach_path::in_tmp(self), self);
  if (self == 0) {  // everybody's; whose a directory is must still be right
    const std::string mark = "weft-";
    for (const std::string& e : entries("/tmp")) {
      if (e.starts_with(mark))
        add("/tmp/" + e, static_cast<uid_t>(std::strtoul(e.c_str() + mark.size(), nullptr, 10)));
    }
    for (const std::string& e : entries("/run/user"))
      add(attach_path::in_runtime_dir("/run/user/" + e),
          static_cast<uid_t>(std::strtoul(e.c_str(), nullptr, 10)));
  }
  std::set<pid_t> seen;
  std::vector<listed> all;
  for (const place& p : places) {
    if (!attach_path::wrong_with(p.dir, p.uid).empty()) continue;
    for (const std::string& entry : entries(p.dir)) {
      attach_path::name n;
      if (!attach_path::parse(entry, n)) continue;
      ucred peer{};
      int error = 0;
      const std::string path = p.dir + '/' + entry;
      if (open_socket(path, 1, peer, error) && peer.pid > 0 && peer.uid == p.uid &&
          seen.insert(peer.pid).second)
        all.push_back({peer.pid, path});
    }
  }
  std::sort(all.begin(), all.end(), [](const listed& a, const listed& b) { return a.pid < b.pid; });
  return all;
}

}  // namespace weft::tool
