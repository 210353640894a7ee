#include <cassert>
#include <cstdio>
#include <weft/weft.hpp>

namespace trace = weft::debug::trace;

int main() {
  return weft::run([] {
    trace::start("demo.trace");
    weft::chan<int> jobs;
    weft::scope s;
    s.go([=] {
      for (int job : jobs) {
        trace::region r("job");  // on the goroutine's own track
        if (job == 2) trace::log("the second one");
      }
    });
    for (int i = 0; i < 3; ++i) jobs.send(i);
    jobs.close();
    s.wait();
    trace::stop();  // the file is complete
    assert(!trace::enabled());
    std::remove("demo.trace");
  });
}
