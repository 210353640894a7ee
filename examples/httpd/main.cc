// SPDX-License-Identifier: Apache-2.0
// A web server for static files, with a goroutine per connection.
//
//   httpd --port 8080 --root .       curl -i localhost:8080/README.md
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <weft/weft.hpp>
#include "common/flags.h"
#include "common/server.h"
#include "httpd/site.h"
#include "httpd/talk.h"

namespace {

int serve(const std::string& address, const httpd::site& site, const weft::recv_chan<void>& stop,
          std::chrono::seconds timeout, std::chrono::milliseconds grace) {
  std::vector<weft::net::listener> listeners;
  listeners.push_back(weft::net::listen("tcp", address));
  std::printf("httpd: listening on %s\n", listeners[0].addr().to_string().c_str());
  std::fflush(stdout);
  examples::server server(grace);
  server.serve(listeners, stop,
               [&](const weft::net::conn& c) { httpd::talk(c, site, server, timeout); });
  std::printf("httpd: stopped\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int port = 8080, timeout = 60, grace = 5000;
  std::string host = "127.0.0.1", root;
  examples::flags("httpd", "A web server for static files.")
      .text("--host", "HOST", host, "address to listen on (127.0.0.1)")
      .number("--port", "N", 0, 65535, port, "port (8080); 0 takes a free one")
      .text("--root", "DIR", root, "directory to serve; without it / is a greeting")
      .number("--timeout", "S", 1, 86'400, timeout, "for a request, or a part of an answer (60)")
      .number("--grace", "MS", 0, 3'600'000, grace,
              "how long a stop waits for answers under way (5000)")
      .parse(argc, argv);
  const weft::recv_chan<void> stop = examples::stop_signals();
  try {
    const httpd::site site = root.empty() ? httpd::site() : httpd::site::at(root);
    const bool v6 = host.find(':') != std::string::npos;
    const std::string address = (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
    return weft::run([&] {
      return serve(address, site, stop, std::chrono::seconds(timeout),
                   std::chrono::milliseconds(grace));
    });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "httpd: %s\n", e.what());
    return 1;
  }
}
