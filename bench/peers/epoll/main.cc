// SPDX-License-Identifier: Apache-2.0
// The servers without any runtime: one thread a CPU, each with an epoll of its own and its share of
// the connections. What a network runtime is measured against.
#include <array>
#include <cerrno>
#include <cstdint>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../protocol.h"

namespace {

struct connection {
  int fd;
  std::string unanswered;  // of HTTP: the begin of a request
};

// False: it has ended.
using talk = bool (*)(connection&);

bool send_all(int fd, std::string_view text) {
  // Answers are small and clients wait for them: they always fit into the socket's buffer.
  return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

bool echo(connection& c) {
  std::array<char, 4096> b;
  const ssize_t n = ::recv(c.fd, b.data(), b.size(), MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN) return true;
  return n > 0 && send_all(c.fd, {b.data(), static_cast<std::size_t>(n)});
}

bool greet(connection& c) {
  constexpr std::string_view answer =
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n\r\nHello, world!\n";
  std::array<char, 4096> b;
  const ssize_t n = ::recv(c.fd, b.data(), b.size(), MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN) return true;
  if (n <= 0) return false;
  c.unanswered.append(b.data(), static_cast<std::size_t>(n));
  for (std::size_t end; (end = c.unanswered.find("\r\n\r\n")) != std::string::npos;) {
    c.unanswered.erase(0, end + 4);
    if (!send_all(c.fd, answer)) return false;
  }
  return true;
}

[[noreturn]] void loop(int epoll, talk f) {
  for (std::array<epoll_event, 256> events;;) {
    const int ready = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      auto* c = static_cast<connection*>(events[static_cast<std::size_t>(i)].data.ptr);
      if (f(*c)) continue;
      ::close(c->fd);
      delete c;
    }
  }
}

template <talk f>
void serve(const char*, long) {
  const int l = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (::bind(l, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || ::listen(l, 4096) != 0 ||
      ::getsockname(l, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    std::abort();
  std::printf("PORT %d\n", ntohs(at.sin_port));
  const char* procs = std::getenv("BENCH_PROCS");
  const auto threads =
      procs != nullptr ? std::strtoul(procs, nullptr, 10) : std::thread::hardware_concurrency();
  std::vector<int> epolls;
  for (std::size_t i = 0; i < threads; ++i) {
    epolls.push_back(::epoll_create1(EPOLL_CLOEXEC));
    std::thread(loop, epolls.back(), f).detach();
  }
  for (std::size_t next = 0;; ++next) {
    const int fd = ::accept4(l, nullptr, nullptr, SOCK_CLOEXEC);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_event e{.events = EPOLLIN, .data = {.ptr = new connection{fd, {}}}};
    if (fd < 0 || ::epoll_ctl(epolls[next % epolls.size()], EPOLL_CTL_ADD, fd, &e) != 0)
      std::abort();
  }
}

constexpr bench::workload workloads[] = {
    {"serve_echo", serve<echo>},
    {"serve_http", serve<greet>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
