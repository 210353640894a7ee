// SPDX-License-Identifier: Apache-2.0
// testing::network and testing::pipe over net/memory.h. Runs on the caller's stack.
#include <stdexcept>

#include "net/memory.h"
#include "net/socket.h"
#include "weft/testing.hpp"

namespace weft::testing {

network::network() : network(options()) {}
network::network(const options& o) : impl_(detail::memory_network::make(o)) {}
network::~network() { impl_->remove(); }

std::pair<net::conn, net::conn> pipe() {
  detail::memory_network* n = detail::memory_network::current();
  if (n == nullptr) throw std::logic_error("the goroutine's bubble has no network");
  auto [a, b] = n->pipe();
  std::error_code ec;
  net::conn first(detail::net_fd::make(std::move(a), "unix", ec));
  net::conn second(ec ? nullptr : detail::net_fd::make(std::move(b), "unix", ec));
  if (ec) throw std::bad_alloc();
  return {std::move(first), std::move(second)};
}

}  // namespace weft::testing
