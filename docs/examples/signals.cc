// SPDX-License-Identifier: Apache-2.0
// A server that reloads at SIGHUP and ends at SIGINT or SIGTERM.
#include <cassert>
#include <csignal>
#include <string>
#include <unistd.h>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    auto [ctx, stop] = weft::with_signals(weft::background(), {SIGINT, SIGTERM});
    weft::signals reload({SIGHUP});

    int reloaded = 0;
    weft::wait_group server;
    server.go([&, ctx = ctx] {
      while (!ctx.err()) {
        weft::select(weft::recv(reload.c,
                                [&](std::optional<int>) {
                                  ++reloaded;
                                  ::kill(::getpid(), SIGTERM);
                                }),
                     weft::recv(ctx.done()));
      }
    });
    ::kill(::getpid(), SIGHUP);
    server.wait();
    assert(reloaded == 1);
    try {
      std::rethrow_exception(ctx.cause());
    } catch (const weft::signal_received& e) {
      assert(e.signal() == SIGTERM && e.what() == std::string("terminated signal received"));
    }
    stop();         // from here on a SIGTERM ends the process again
    reload.stop();  // nothing is sent to reload.c any more
  });
}
