// SPDX-License-Identifier: Apache-2.0
// parked: n goroutines that wait at once. What each takes of memory, what it costs to start one and
// to wake it. Nothing is warm: what is measured is the first time.
#include "bench.h"

#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace {

// Memory and page tables of this process.
double bytes_used() {
  char text[8192];
  const int fd = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd >= 0 ? ::read(fd, text, sizeof text - 1) : -1;
  if (fd >= 0) ::close(fd);
  text[n > 0 ? n : 0] = '\0';
  double kib = 0;
  for (const char* field : {"\nVmRSS:", "\nVmPTE:"}) {
    if (const char* at = std::strstr(text, field))
      kib += std::strtod(at + std::strlen(field), nullptr);
  }
  return kib * 1024;
}

void parked(const char*, long n) {
  using clock = std::chrono::steady_clock;
  const auto ns = [n](clock::duration d) {
    return std::chrono::duration<double, std::nano>(d).count() / static_cast<double>(n);
  };
  weft::chan<void> gate;
  weft::wait_group started;
  weft::scope all;
  const double before = bytes_used();
  const auto begin = clock::now();
  started.add(static_cast<int>(n));
  for (long i = 0; i < n; ++i) {
    all.go([&] {
      started.done();
      (void)gate.recv();
    });
  }
  started.wait();
  const auto up = clock::now();
  while (weft::debug::runtime_stats().waiting < static_cast<std::size_t>(n)) weft::yield();
  const double bytes = bytes_used() - before;
  const auto wake = clock::now();
  gate.close();
  all.wait();
  bench::report("parked_bytes", bytes / static_cast<double>(n), "B");
  bench::report("parked_spawn", ns(up - begin), "ns");
  bench::report("parked_wake", ns(clock::now() - wake), "ns");
}

constexpr bench::workload workloads[] = {{"parked", parked}};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
