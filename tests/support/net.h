// SPDX-License-Identifier: Apache-2.0
// What tests of the network share: a connected pair on the loopback, the text of what is thrown,
// and the process's descriptors.
#pragma once

#include <dirent.h>
#include <exception>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "weft/net.hpp"

namespace weft::test {

struct connected {
  net::conn client, server;
};

inline connected connect_pair(std::string_view network = "tcp",
                              std::string_view at = "127.0.0.1:0") {
  const net::listener l = net::listen(network, at);
  connected c;
  // The kernel completes it without an accept.
  c.client = net::dial(network, l.addr().to_string());
  c.server = l.accept();
  return c;
}

// An abstract Unix address that no other test has that runs meanwhile.
inline std::string own_address(std::string_view what) {
  return "@weft-" + std::string(what) + '-' + std::to_string(::getpid());
}

template <class F>
std::string text_of(F f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing thrown";
}

inline int open_descriptors() {
  int n = 0;
  DIR* d = ::opendir("/proc/self/fd");
  while (::readdir(d) != nullptr) ++n;
  ::closedir(d);
  return n;
}

inline clock::time_point in(std::chrono::nanoseconds d) { return clock::now() + d; }

}  // namespace weft::test
