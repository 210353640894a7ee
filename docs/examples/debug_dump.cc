// SPDX-License-Identifier: Apache-2.0
// docs/debugging.md: a dump of every goroutine.
#include <cassert>
#include <sstream>
#include <string>
#include <weft/weft.hpp>

void worker(weft::chan<int> jobs) { (void)jobs.recv(); }

int main() {
  return weft::run([] {
    weft::chan<int> jobs;
    weft::go({.name = "worker"}, worker, jobs);
    while (weft::debug::runtime_stats().waiting != 1) weft::yield();
    std::ostringstream text;
    weft::debug::dump(text);
    assert(text.str().find("\"worker\" [chan receive]:\n") != std::string::npos);
    assert(text.str().find("created by ") != std::string::npos);
    jobs.close();
  });
}
