// SPDX-License-Identifier: Apache-2.0
// What a program costs that does nothing: CPU time while 1000 goroutines are parked, main among
// them waiting. A plain thread keeps the time, so that no timer of the runtime disturbs the rest.
#include "bench.h"

#include <sys/resource.h>
#include <sys/time.h>

#include <thread>
#include <vector>

namespace {

double cpu_microseconds() {
  rusage r{};
  getrusage(RUSAGE_SELF, &r);
  const auto us = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
  };
  return us(r.ru_utime) + us(r.ru_stime);
}

void idle(const char* name, long milliseconds) {
  std::vector<weft::promise<void>> wakers(1000);
  weft::scope s;
  for (auto& w : wakers) s.go([t = w.get_task()] { t.wait(); });
  double used = 0;
  std::thread watch([&] {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(300));  // until the last spinner has gone to sleep
    const double before = cpu_microseconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    used = cpu_microseconds() - before;
    for (auto& w : wakers) w.set_value();
  });
  s.wait();
  watch.join();
  bench::report(name, used * 1e3 / static_cast<double>(milliseconds), "us/s");
}

constexpr bench::workload workloads[] = {{"idle1000", idle}};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
