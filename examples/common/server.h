// SPDX-License-Identifier: Apache-2.0
// A server's frame: a goroutine per connection, and an end in good order.
//
// When told to stop it accepts nobody more and lets those who wait for a request go at once (their
// reads time out). A request that is being answered is answered; what is not done when the grace is
// over is closed.
//
// A handler that fails with an exception (no memory, as a rule) ends its own connection and nobody
// else's.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <weft/weft.hpp>

namespace examples {

// SIGINT and SIGTERM as a channel that is closed at the first of them. Made before any other thread
// is, so that all of them have the signals blocked and they arrive here only.
inline weft::recv_chan<void> stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const weft::chan<void> stop;
  std::thread([stop, set] {
    int signal = 0;
    while (sigwait(&set, &signal) != 0) {
    }
    stop.close();
  }).detach();
  return stop;
}

class server {
 public:
  explicit server(std::chrono::milliseconds grace) : grace_(grace) {}

  // Serves until `stop` is closed and everybody has gone. handler(conn&, stopping()) runs in a
  // goroutine of its own and ends with its connection.
  template <class Handler>
  void serve(const std::vector<weft::net::listener>& listeners, const weft::recv_chan<void>& stop,
             Handler handler) {
    weft::wait_group accepting;
    for (const weft::net::listener& l : listeners)
      accepting.go([this, &l, &handler] { accept_all(l, handler); });
    stop.recv();
    for (const weft::net::listener& l : listeners) l.close();
    accepting.wait();  // from here on nobody is added

    interrupt();
    const weft::chan<void> gone;
    weft::go([this, gone] {
      serving_.wait();
      gone.close();
    });
    if (gone.recv_for(grace_) == weft::recv_status::timeout) {
      close_all();
      gone.recv();
    }
  }

  // For handlers: no further request is to be waited for.
  bool stopping() const {
    const std::lock_guard lock(mu_);
    return stopping_;
  }
  std::size_t connections() const {
    const std::lock_guard lock(mu_);
    return open_.size();
  }

 private:
  template <class Handler>
  void accept_all(const weft::net::listener& l, const Handler& handler) {
    using namespace std::chrono_literals;
    std::chrono::milliseconds pause = 5ms;
    for (;;) {
      std::error_code ec;
      weft::net::conn c = l.accept(ec);
      if (ec == weft::errc::closed) return;
      if (ec) {  // out of descriptors, as a rule: some will be given back
        std::fprintf(stderr, "accept: %s; again in %d ms\n", ec.message().c_str(),
                     static_cast<int>(pause.count()));
        weft::sleep_for(pause);
        pause = std::min<std::chrono::milliseconds>(pause * 2, 1s);
        continue;
      }
      pause = 5ms;
      try {
        serving_.go([this, &handler, c = std::move(c)] { serve_one(c, handler); });
      } catch (const std::exception& e) {
        tell(e);
      }
    }
  }
  template <class Handler>
  void serve_one(const weft::net::conn& c, const Handler& handler) {
    try {
      const guest here(*this, c);
      handler(c);
    } catch (const std::exception& e) {  // not `...`: that would be in a goexit's way
      tell(e);
    }
  }
  static void tell(const std::exception& e) {
    std::fprintf(stderr, "a connection ends: %s\n", e.what());
  }

  struct guest {  // in open_ as long as its handler runs
    server& s;
    const weft::net::conn& c;
    guest(server& sv, const weft::net::conn& cn) : s(sv), c(cn) {
      const std::lock_guard lock(s.mu_);
      s.open_.insert(&c);
      if (s.stopping_) interrupt(c);
    }
    guest(const guest&) = delete;
    guest& operator=(const guest&) = delete;
    ~guest() {
      const std::lock_guard lock(s.mu_);
      s.open_.erase(&c);
    }
  };

  static void interrupt(const weft::net::conn& c) {
    std::error_code gone;  // it may be closed already
    c.set_read_deadline(weft::clock::now(), gone);
  }
  void interrupt() {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    for (const weft::net::conn* c : open_) interrupt(*c);
  }
  void close_all() {
    const std::lock_guard lock(mu_);
    for (const weft::net::conn* c : open_) {
      std::error_code gone;
      c->close(gone);
    }
  }

  const std::chrono::milliseconds grace_;
  weft::wait_group serving_;
  mutable weft::mutex mu_;
  bool stopping_ = false;
  std::unordered_set<const weft::net::conn*> open_;
};

}  // namespace examples
