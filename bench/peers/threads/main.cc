// SPDX-License-Identifier: Apache-2.0
// The workloads with a std::thread for each goroutine: what the operating system does without any
// runtime. A channel is a queue under a mutex with two condition variables, as in every textbook.
//
// Left out: what needs more threads than a machine is configured for or takes minutes with them
// (skynet, sleepers, fib), select, contexts, timers that can be stopped.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../protocol.h"

namespace {

using bench::clock;

class crew {
 public:
  template <class F>
  void go(F f) {
    all_.emplace_back(std::move(f));
  }
  ~crew() {
    for (std::thread& t : all_) t.join();
  }

 private:
  std::vector<std::thread> all_;
};

class channel {
 public:
  explicit channel(std::size_t capacity) : capacity_(capacity) {}
  void send(long v) {
    std::unique_lock lock(mu_);
    not_full_.wait(lock, [&] { return queue_.size() < capacity_; });
    queue_.push_back(v);
    not_empty_.notify_one();
  }
  std::optional<long> recv() {
    std::unique_lock lock(mu_);
    not_empty_.wait(lock, [&] { return !queue_.empty() || closed_; });
    if (queue_.empty()) return {};
    const long v = queue_.front();
    queue_.pop_front();
    not_full_.notify_one();
    return v;
  }
  void close() {
    const std::lock_guard lock(mu_);
    closed_ = true;
    not_empty_.notify_all();
  }

 private:
  std::mutex mu_;
  std::condition_variable not_full_, not_empty_;
  std::deque<long> queue_;
  const std::size_t capacity_;
  bool closed_ = false;
};

template <long k>
void yields(long n) {
  crew all;
  for (long g = 0; g < k; ++g) {
    all.go([turns = n / k + (g < n % k)] {
      for (long i = 0; i < turns; ++i) std::this_thread::yield();
    });
  }
}

void spawn_join(long n) {
  for (long i = 0; i < n; ++i) std::thread([] {}).join();
}

void spawn_batch(long n) {
  crew all;
  for (long i = 0; i < n; ++i) all.go([] {});
}

// n threads that wait at a gate. A latch is a futex: no lock that all of them want when they wake.
struct gathering {
  std::latch complete, gate{1};
  crew all;  // ends first

  explicit gathering(long n) : complete(n) {
    for (long i = 0; i < n; ++i) {
      all.go([this] {
        complete.count_down();
        gate.wait();
      });
    }
    complete.wait();
  }
  ~gathering() { gate.count_down(); }
};

void parked(const char*, long n) {
  const double before = bench::memory();
  const double count = static_cast<double>(n);
  auto start = clock::now();
  std::optional<gathering> g(n);
  bench::report("parked_spawn", bench::ns_since(start) / count, "ns");
  // The kernel's own part, a stack of 16 KiB and the task, is not in this figure.
  bench::report("parked_bytes", (bench::memory() - before) / count, "B");
  start = clock::now();
  g.reset();
  bench::report("parked_wake", bench::ns_since(start) / count, "ns");
}

void close_wakes(const char* name, long n) {
  std::optional<gathering> g(n);
  const auto start = clock::now();
  g.reset();
  bench::report(name, bench::ns_since(start) / static_cast<double>(n), "ns");
}

void idle(const char* name, long milliseconds) {
  const gathering g(1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double before = bench::cpu_microseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  bench::report(
      name, (bench::cpu_microseconds() - before) * 1e3 / static_cast<double>(milliseconds), "us/s");
}

void handoff(long n) {
  channel c(1);
  std::atomic<long> seen{-1};
  crew all;
  all.go([&] {
    while (auto i = c.recv()) seen.store(*i, std::memory_order_release);
  });
  for (long i = 0; i < n; ++i) {
    c.send(i);
    while (seen.load(std::memory_order_acquire) != i) {
    }
  }
  c.close();
}

void pingpong(long n) {
  channel there(1), back(1);
  crew all;
  all.go([&] {
    for (long i = 0; i < n; ++i) back.send(*there.recv());
  });
  for (long i = 0; i < n; ++i) {
    there.send(i);
    (void)back.recv();
  }
}

template <long k>
void through(long n) {
  channel c(128);
  crew consumers;
  for (long i = 0; i < k; ++i) {
    consumers.go([&] {
      while (c.recv()) {
      }
    });
  }
  {
    crew producers;
    for (long i = 0; i < k; ++i) {
      producers.go([&] {
        for (long j = 0; j < n / k; ++j) c.send(j);
      });
    }
  }
  c.close();
}

template <long k>
void locks(long n) {
  std::mutex mu;
  long count = 0;
  {
    crew all;
    for (long g = 0; g < k; ++g) {
      all.go([&, turns = n / k + (g < n % k)] {
        for (long i = 0; i < turns; ++i) {
          const std::lock_guard lock(mu);
          ++count;
        }
      });
    }
  }
  if (count != n) std::abort();
}

void sleeps(const char* name, long n) {
  const auto start = clock::now();
  {
    crew all;
    for (int i = 0; i < 200; ++i) {
      all.go([n] {
        for (long k = 0; k < n; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      });
    }
  }
  bench::report(name, bench::ns_since(start) / 1e6, "ms");
}

void sleeper(const char*, long n) {
  std::atomic<bool> over{false};
  crew hogs;
  for (int i = 0; i < 2; ++i) {
    hogs.go([&] {
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
  }
  std::vector<double> late;
  for (long i = 0; i < n; ++i) {
    const auto start = clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    late.push_back(bench::ns_since(start) / 1e6 - 1);
  }
  over = true;
  std::ranges::sort(late);
  bench::report("sleeper_p50", late[late.size() / 2], "ms");
  bench::report("sleeper_p99", late[late.size() * 99 / 100], "ms");
}

void serve_echo(const char*, long) {
  const int l = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (::bind(l, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || ::listen(l, 4096) != 0 ||
      ::getsockname(l, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    std::abort();
  std::printf("PORT %d\n", ntohs(at.sin_port));
  for (;;) {
    const int fd = ::accept(l, nullptr, nullptr);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::thread([fd] {
      char b[4096];
      for (ssize_t n; (n = ::recv(fd, b, sizeof b, 0)) > 0;)
        if (::send(fd, b, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n) break;
      ::close(fd);
    }).detach();
  }
}

constexpr bench::workload workloads[] = {
    {"yield1", bench::ns_per_op<yields<1>>},
    {"yield2", bench::ns_per_op<yields<2>>},
    {"yield100", bench::ns_per_op<yields<100>>},
    {"spawn_join", bench::ns_per_op<spawn_join>},
    {"spawn_batch", bench::ns_per_op<spawn_batch>},
    {"parked", parked},
    {"handoff", bench::ns_per_op<handoff>},
    {"idle1000", idle},
    {"chan_pingpong", bench::ns_per_op<pingpong>},
    {"chan_buffered", bench::ns_per_op<through<1>>},
    {"chan_buffered_4x4", bench::ns_per_op<through<4>>},
    {"close_wakes", close_wakes},
    {"mutex1", bench::ns_per_op<locks<1>>},
    {"mutex2", bench::ns_per_op<locks<2>>},
    {"mutex100", bench::ns_per_op<locks<100>>},
    {"sleeps_unannounced", sleeps},
    {"sleeper", sleeper},
    {"serve_echo", serve_echo},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
