// SPDX-License-Identifier: Apache-2.0
// The frame that the servers of examples/ share (common/server.h).
#include "common/server.h"

#include <atomic>
#include <gtest/gtest.h>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/net.h"
#include "support/runtime.h"

namespace {

using namespace weft;
using namespace weft::test;

// What leaves a goroutine ends the process.
TEST(Server, AFailureEndsItsConnectionOnly) {
  run_clean([] {
    std::vector<net::listener> listeners;
    listeners.push_back(net::listen("tcp", "127.0.0.1:0"));
    const std::string at = listeners[0].addr();
    const chan<void> stop;
    examples::server server(std::chrono::seconds(10));
    wait_group serving;
    serving.go([&] {
      server.serve(listeners, stop, [](const net::conn& c) {
        char b = 0;
        if (c.read_some(std::span(&b, 1)) == 0) return;
        if (b == 'm') throw std::bad_alloc();
        if (b == 'x') throw std::runtime_error("out of order");
        c.write_all("ok");
      });
    });
    const auto ask = [&at](std::string_view what) {
      const net::conn c = net::dial("tcp", at);
      c.set_deadline(in(std::chrono::seconds(60)));
      c.write_all(what);
      std::string got(2, '\0');
      std::error_code ec;
      got.resize(c.read_full(std::span(got), ec));
      return got;
    };
    EXPECT_EQ(ask("m"), "");
    EXPECT_EQ(ask("x"), "");
    EXPECT_EQ(ask("a"), "ok");
    EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
    stop.close();
    serving.wait();
  });
}

}  // namespace
