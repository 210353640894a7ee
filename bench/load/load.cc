// SPDX-License-Identifier: Apache-2.0
// The load generator of the network rows, and the stopwatch of the start-up row: the same for every
// system, so it is plain epoll and belongs to none of them.
//
//   load echo PORT CONNS N          64 bytes there and back
//   load http PORT CONNS N          GET /, the connection kept
//   load startup N PROGRAM ARG...   the program from fork to exit, the median of N
//
// Closed loop: each connection has one request under way. Two threads share the connections; each
// counts its half of the N answers, after a tenth that is not counted, and stops there, so that no
// connection is left alone at the end. Prints throughput and the percentiles of the round trip.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using clock = std::chrono::steady_clock;
constexpr int threads = 2;
constexpr int patience_ms = 20'000;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "load: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void report(const char* metric, double value, const char* unit) {
  std::printf("RESULT %s %.4f %s\n", metric, value, unit);
}

struct request {
  std::string text;
  bool http;
};

struct connection {
  int fd = -1;
  clock::time_point sent;
  std::size_t got = 0;
  std::size_t wanted = 0;  // 0: the head of the answer is not complete
  std::array<char, 2048> answer;

  void send(const request& r) {
    got = 0;
    wanted = r.http ? 0 : r.text.size();
    sent = clock::now();
    // A request always fits into an empty socket buffer.
    if (::send(fd, r.text.data(), r.text.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(r.text.size()))
      die("send");
  }

  // True when the whole answer is there.
  bool receive() {
    const ssize_t n = ::recv(fd, answer.data() + got, answer.size() - got, MSG_DONTWAIT);
    if (n == 0) errno = ECONNRESET;
    if (n <= 0 && (n == 0 || errno != EAGAIN)) die("recv");
    if (n < 0) return false;
    got += static_cast<std::size_t>(n);
    if (wanted == 0) wanted = answer_length();
    return wanted != 0 && got >= wanted;
  }

  std::size_t answer_length() const {
    const std::string_view text(answer.data(), got);
    const std::size_t head = text.find("\r\n\r\n");
    if (head == text.npos) return 0;
    constexpr std::string_view field = "\r\ncontent-length:";
    const auto at = std::search(text.begin(), text.end(), field.begin(), field.end(),
                                [](char a, char b) { return (a | 0x20) == (b | 0x20); });
    if (at == text.end() || text.substr(0, 12) != "HTTP/1.1 200") {
      errno = EPROTO;
      die("answer");
    }
    return head + 4 + std::strtoul(&*at + field.size(), nullptr, 10);
  }
};

int dial(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) die("connect");
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const linger hard{.l_onoff = 1, .l_linger = 0};  // leaves no ports in TIME_WAIT for the next run
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  return fd;
}

struct half {
  std::vector<connection> conns;
  std::vector<std::uint32_t> took;  // ns, saturated
  clock::time_point begin, end;
  int epoll = ::epoll_create1(EPOLL_CLOEXEC);

  void connect(int port, long count) {
    conns = std::vector<connection>(static_cast<std::size_t>(count));
    for (connection& c : conns) {
      c.fd = dial(port);
      epoll_event e{.events = EPOLLIN, .data = {.ptr = &c}};
      if (::epoll_ctl(epoll, EPOLL_CTL_ADD, c.fd, &e) != 0) die("epoll_ctl");
    }
  }

  void run(const request& r, std::size_t n) {
    took.reserve(n);
    for (connection& c : conns) c.send(r);
    std::size_t untimed = n / 10 + conns.size();
    for (epoll_event events[256];;) {
      const int ready = ::epoll_wait(epoll, events, 256, patience_ms);
      if (ready == 0) errno = ETIMEDOUT;
      if (ready <= 0) die("epoll_wait");
      for (int i = 0; i < ready; ++i) {
        connection& c = *static_cast<connection*>(events[i].data.ptr);
        if (!c.receive()) continue;
        const clock::time_point now = clock::now();
        if (untimed > 0) {
          if (--untimed == 0) begin = now;
        } else {
          took.push_back(static_cast<std::uint32_t>(
              std::min<std::int64_t>(std::chrono::nanoseconds(now - c.sent).count(), UINT32_MAX)));
          if (took.size() == n) {
            end = now;
            return;
          }
        }
        c.send(r);
      }
    }
  }
};

int requests(const request& r, int port, long conns, long n) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::array<half, threads> halves;
  const long used = std::min<long>(conns, threads);
  const auto each = [&](auto f) {
    std::vector<std::thread> all;
    for (long i = 0; i < used; ++i)
      all.emplace_back([&, i] { f(halves[static_cast<std::size_t>(i)], i); });
    for (std::thread& t : all) t.join();
  };
  each([&](half& h, long i) { h.connect(port, conns / used + (i < conns % used)); });
  each([&](half& h, long) { h.run(r, static_cast<std::size_t>(n / used + 1)); });

  std::vector<std::uint32_t> all;
  double rate = 0;
  for (long i = 0; i < used; ++i) {
    const half& h = halves[static_cast<std::size_t>(i)];
    all.insert(all.end(), h.took.begin(), h.took.end());
    rate +=
        static_cast<double>(h.took.size()) / std::chrono::duration<double>(h.end - h.begin).count();
  }
  std::ranges::sort(all);
  const auto at = [&](std::size_t percent) { return all[all.size() * percent / 100] / 1e3; };
  report("rate", rate, "1/s");
  report("p50", at(50), "us");
  report("p99", at(99), "us");
  return 0;
}

int startup(long n, char** program) {
  std::vector<double> took;
  for (long i = 0; i < n + 1; ++i) {
    const clock::time_point start = clock::now();
    pid_t pid = 0;
    int status = 0;
    if (errno = ::posix_spawnp(&pid, program[0], nullptr, nullptr, program, environ); errno != 0)
      die(program[0]);
    if (::waitpid(pid, &status, 0) != pid || status != 0) die("the program failed");
    // The first time reads the file.
    if (i > 0)
      took.push_back(std::chrono::duration<double, std::micro>(clock::now() - start).count());
  }
  std::ranges::sort(took);
  report("startup", took[took.size() / 2], "us");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 3 ? argv[1] : "";
  if (what == "echo" && argc == 5)
    return requests({std::string(64, 'x'), false}, std::atoi(argv[2]), std::atol(argv[3]),
                    std::atol(argv[4]));
  if (what == "http" && argc == 5)
    return requests({"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", true}, std::atoi(argv[2]),
                    std::atol(argv[3]), std::atol(argv[4]));
  if (what == "startup") return startup(std::atol(argv[2]), argv + 3);
  std::fprintf(stderr, "usage: %s echo|http PORT CONNS N | startup N PROGRAM ARG...\n", argv[0]);
  return 2;
}
