// SPDX-License-Identifier: Apache-2.0
// What a program does that meets failing system calls (WEFT_CHAOS=faults=...): each way of using
// the runtime is a part of its own. Ends with "done" on standard output and status 0; with status 3
// and "error: ..." if an error was reported to it; the rest is the runtime's.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "weft/chan.hpp"
#include "weft/file.hpp"
#include "weft/go.hpp"
#include "weft/net.hpp"
#include "weft/run.hpp"
#include "weft/sync.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

namespace {

using namespace std::chrono_literals;

constexpr int many = 1500;

// Stacks, runtime objects, threads, slices that end.
void goroutines() {
  weft::scope s;
  weft::chan<int> c(8);
  std::atomic<int> sum{0};
  for (int i = 0; i < many; ++i) s.go([&c] { c.send(1); });
  s.go([&] {
    for (int i = 0; i < many; ++i) sum += *c.recv();
  });
  for (int i = 0; i < 4; ++i) {
    s.go([] {
      const auto until = std::chrono::steady_clock::now() + 25ms;
      while (std::chrono::steady_clock::now() < until) {
      }
    });
  }
  s.wait();
  if (sum != many) throw std::runtime_error("goroutines were lost");
}

// Announced calls and such as nobody announced.
void calls() {
  weft::scope s;
  for (int i = 0; i < 16; ++i) {
    s.go([i] {
      const timespec ts{0, 2'000'000};
      if (i % 2 == 0) {
        weft::blocking([&] { ::nanosleep(&ts, nullptr); });
      } else {
        ::nanosleep(&ts, nullptr);
      }
      for (int k = 0; k < 100; ++k) weft::yield();
    });
  }
  s.wait();
}

void talk(const weft::net::conn& c) {
  std::array<std::byte, 4> word{};
  c.write_all(word);
  (void)c.read_some(word);
}

// The errors, which a goroutine must not throw. All of them: the other side hears of a connection
// that closes on the way to the handler, and may be faster than it.
struct outcome {
  std::mutex lock;
  std::string error;
  template <class F>
  void of(F f) {
    try {
      f();
    } catch (const std::exception& e) {
      const std::lock_guard hold(lock);
      (error += error.empty() ? "" : "; ") += e.what();
    }
  }
  bool failed() {
    const std::lock_guard hold(lock);
    return !error.empty();
  }
  void tell() const {
    if (!error.empty()) throw std::runtime_error(error);
  }
};

void shut(const weft::net::listener& l) {
  std::error_code ec;
  l.close(ec);  // the other side may have been faster
}

void serve(const weft::net::listener& l, int n, outcome& o) {
  o.of([&] {
    for (int i = 0; i < n; ++i) talk(l.accept());
  });
  shut(l);  // whoever waits for us hears it
}

void network() {
  const weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0");
  outcome o;
  weft::scope s;
  s.go([&] { serve(l, 8, o); });
  o.of([&] {
    for (int i = 0; i < 8; ++i) talk(weft::net::dial("tcp", l.addr().to_string()));
  });
  if (o.failed()) shut(l);
  s.wait();
  o.tell();
}

// A plain thread waits for a descriptor.
void outsider() {
  const weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0");
  outcome o;
  std::thread t([&] { serve(l, 1, o); });
  weft::sleep_for(5ms);
  o.of([&] { talk(weft::net::dial("tcp", l.addr().to_string())); });
  if (o.failed()) shut(l);
  weft::blocking([&] { t.join(); });
  o.tell();
}

void pipes() {
  const auto [from, to] = weft::file::pipe();
  weft::scope s;
  s.go([&r = from] {
    std::array<std::byte, 1> b{};
    (void)r.read_some(b);
  });
  std::array<std::byte, 1> b{};
  to.write_all(b);
  s.wait();
}

// Through to the disk, and from it.
void files() {
  char path[] = "/tmp/weft-chaos-XXXXXX";
  const weft::file f = weft::file::adopt(::mkstemp(path), path);
  ::unlink(path);
  weft::scope s;
  outcome o;
  for (int i = 0; i < 8; ++i) {
    s.go([&, i] {
      o.of([&] {
        std::array<std::byte, 4096> page{};
        page[0] = static_cast<std::byte>(i);
        f.write_at(page, i * 4096);
        f.sync();
        page[0] = std::byte{99};
        f.read_at(page, i * 4096);
        if (page[0] != static_cast<std::byte>(i)) throw std::runtime_error("not what was written");
      });
    });
  }
  s.wait();
  o.tell();
}

void part(std::string_view name) {
  if (name == "files") return files();
  if (name == "goroutines") return goroutines();
  if (name == "calls") return calls();
  if (name == "network") return network();
  if (name == "outsider") return outsider();
  if (name == "pipes") return pipes();
  throw std::runtime_error("no such part");
}

}  // namespace

int main(int argc, char** argv) {
  weft::config c;
  c.procs = 4;
  int status = 0;
  weft::run(c, [&] {
    try {
      for (int i = 1; i < argc; ++i) part(argv[i]);
      std::puts("done");
    } catch (const std::exception& e) {
      std::printf("error: %s\n", e.what());
      status = 3;
    }
  });
  return status;
}
