// SPDX-License-Identifier: Apache-2.0
// The network: 64 bytes there and back over TCP on the loopback; client and server are goroutines
// of one process.
#include <weft/net.hpp>

#include <array>
#include <cstddef>
#include <utility>

#include "bench.h"

namespace {

constexpr std::size_t message = 64;

// n round trips in all, over `conns` connections at once.
template <long conns>
void echo(long n) {
  const weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0");
  weft::scope s;
  for (long i = 0; i < conns; ++i) {
    s.go([c = weft::net::dial("tcp", l.addr()), n] {
      std::array<std::byte, message> b{};
      for (long k = 0; k < n / conns; ++k) {
        c.write_all(b);
        c.read_full(b);
      }
    });
    s.go([c = l.accept()] {
      std::array<std::byte, message> b;
      std::error_code ec;
      while (c.read_full(b, ec) == message) c.write_all(b, ec);
    });
  }
  s.wait();
}

constexpr bench::workload workloads[] = {
    {"roundtrip1", bench::ns_per_op<echo<1>>},
    {"roundtrip64", bench::ns_per_op<echo<64>>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
