// SPDX-License-Identifier: Apache-2.0
// debug::serve: the answers (answers.h) on a TCP socket. Runs on the caller's stack; the threads of
// answering.cc do the rest, as long as the process lives.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/atomic.h"
#include "debug/answers.h"
#include "net/socket.h"
#include "weft/debug.hpp"

namespace weft::debug {

namespace {

// Pushed and never taken off; the last one first.
struct place {
  std::string addr;
  place* next = nullptr;
};
constinit rt::atomic<place*> places{nullptr};

void remember(place* p) noexcept {
  p->next = places.load(rt::memory_order_relaxed);
  // Release: with served's acquire.
  while (!places.compare_exchange_weak(p->next, p, rt::memory_order_release,
                                       rt::memory_order_relaxed)) {
  }
}

}  // namespace

void serve(std::string_view addr) {
  auto here = std::make_unique<place>();
  const int fd = detail::listen_unpolled("tcp", addr);
  here->addr = detail::name_of(fd, false).to_string();
  if (const int err = start_answering(fd, nullptr, "weft-serve"); err != 0) {
    detail::sys::close(fd);
    throw std::system_error(err, std::generic_category(), "debug::serve: no thread");
  }
  remember(here.release());
}

std::vector<std::string> served() {
  std::vector<std::string> all;
  for (const place* p = places.load(rt::memory_order_acquire); p != nullptr; p = p->next)
    all.push_back(p->addr);
  std::reverse(all.begin(), all.end());
  return all;
}

}  // namespace weft::debug
