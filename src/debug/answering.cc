// SPDX-License-Identifier: Apache-2.0
// The threads that answer (answers.h), over plain HTTP/1.1.
//
// They are threads of their own, not goroutines, and know nothing of the poller: they answer while
// every P is busy, and while nobody runs at all. They sleep in accept as plain threads do, count as
// ours (os/thread.h), and so keep neither a deadlock from being reported nor a leak from being
// found. One request a connection; a head of 8 KiB and ten seconds are all that a client gets.
//
// The child of a fork has none of these threads. It closes the sockets, else a client would wait
// for it when the parent has gone.
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "debug/answers.h"
#include "os/thread.h"

namespace weft::debug {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr int threads = 4;
constexpr std::size_t longest_head = 8192;
constexpr auto patience = 10s;

// Lives as long as the process does.
struct place {
  int fd;
  bool (*admits)(int client) noexcept;
  place* next;
};
constinit rt::atomic<place*> places{nullptr};

const char* reason(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Internal Server Error";
  }
}

void close_all_in_child() noexcept {
  for (place* p = places.load(rt::memory_order_acquire); p != nullptr; p = p->next) ::close(p->fd);
}

// Neither side of a conversation may keep the other for longer than `patience`.
void set_patience(int client) noexcept {
  const timeval tv{patience.count(), 0};
  ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
  ::setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
}

// Empty: the client has gone, or has not asked in time.
std::string read_head(int client) {
  const auto until = steady::now() + patience;
  std::string head;
  char some[1024];
  while (head.find("\r\n\r\n") == std::string::npos && head.size() <= longest_head) {
    const ssize_t n = ::recv(client, some, sizeof some, 0);
    if (n <= 0 || steady::now() > until) return {};
    head.append(some, static_cast<std::size_t>(n));
  }
  return head;
}

bool send_all(int client, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::send(client, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

// SIGPIPE is blocked here, as every signal is.
void send_file(int client, int file, off_t size) noexcept {
  for (off_t at = 0; at < size;) {
    const ssize_t n = ::sendfile(client, file, &at, static_cast<std::size_t>(size - at));
    if (n <= 0) return;
  }
}

void send(int client, const answer& a) {
  struct stat st {};
  if (a.file >= 0) ::fstat(a.file, &st);
  const std::size_t size = a.file >= 0 ? static_cast<std::size_t>(st.st_size) : a.body.size();
  std::string head = "HTTP/1.1 " + std::to_string(a.status) + ' ' + reason(a.status) +
                     "\r\nContent-Type: " + a.type + "\r\nContent-Length: " + std::to_string(size);
  if (!a.source.empty()) head += "\r\nWeft-Trace: " + a.source;
  head += "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
  if (!send_all(client, head)) return;
  if (a.file >= 0) {
    send_file(client, a.file, st.st_size);
  } else {
    send_all(client, a.body);
  }
}

void converse(int client, const place& at) {
  set_patience(client);
  if (at.admits != nullptr && !at.admits(client)) {
    send(client, refusal(403, "only the user of this process, and root"));
    return;
  }
  const std::string head = read_head(client);
  if (head.empty()) return;
  const answer a = head.size() > longest_head ? refusal(431, "too long") : answer_to(head, client);
  struct closer {
    int fd;
    ~closer() {
      if (fd >= 0) ::close(fd);
    }
  } const file{a.file};
  send(client, a);
}

// What has come and was not read would reset the connection, and the answer with it.
void hang_up(int client) noexcept {
  ::shutdown(client, SHUT_WR);
  char rest[4096];
  for (int i = 0; i < 16 && ::recv(client, rest, sizeof rest, MSG_DONTWAIT) > 0; ++i) {
  }
  ::close(client);
}

void answer_for_ever(void* of) {
  const place& at = *static_cast<place*>(of);
  for (;;) {
    const int client = ::accept4(at.fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {
      if (errno != ECONNABORTED && errno != EINTR) ::usleep(10'000);  // out of descriptors
      continue;
    }
    try {
      converse(client, at);
    } catch (const std::exception&) {  // no memory: this client gets no answer
    }
    hang_up(client);
  }
}

}  // namespace

int start_answering(int listening, bool (*admits)(int client) noexcept, const char* name) {
  static const int once = ::pthread_atfork(nullptr, nullptr, close_all_in_child);
  (void)once;
  // Blocking, for accept to sleep.
  ::fcntl(listening, F_SETFL, ::fcntl(listening, F_GETFL) & ~O_NONBLOCK);
  auto* p = new place{listening, admits, nullptr};
  for (int i = 0; i < threads; ++i) {
    const int err = rt::start_service_thread(answer_for_ever, p, name);
    if (err == 0) continue;
    if (i > 0) break;
    delete p;
    return err;
  }
  // Release: with close_all_in_child.
  p->next = places.load(rt::memory_order_relaxed);
  while (!places.compare_exchange_weak(p->next, p, rt::memory_order_release)) {
  }
  return 0;
}

}  // namespace weft::debug
