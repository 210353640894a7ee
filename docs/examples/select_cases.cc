// SPDX-License-Identifier: Apache-2.0
// Select: several channels, a time-out, and cases known only at run time.
#include <cassert>
#include <vector>
#include <weft/weft.hpp>

using namespace std::chrono_literals;

int main() {
  return weft::run([] {
    weft::chan<int> jobs;
    weft::chan<std::string> log(1);
    weft::go([jobs] { jobs.send(42); });

    int got = 0;
    const int which =
        weft::select(weft::recv(jobs, [&](std::optional<int> v) { got = v.value_or(-1); }),
                     weft::recv(weft::after(1s)));
    assert(which == 0 && got == 42);

    // A time-out, and a channel that is never ready.
    weft::chan<int> nil = nullptr;
    bool late = false;
    weft::select(weft::recv(nil), weft::timeout(1ms, [&] { late = true; }));
    assert(late);

    // Go's default: do not wait.
    assert(weft::select(weft::send(log, "first"), weft::otherwise()) == 0);
    assert(weft::select(weft::send(log, "second"), weft::otherwise()) == 1);  // full

    // Cases that are only known at run time.
    std::vector<weft::chan<int>> workers(10);
    weft::selector s;
    int sum = 0;
    for (auto& w : workers) s.recv(w, [&](std::optional<int> v) { sum += v.value_or(0); });
    weft::scope senders;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      senders.go([&w = workers[i], i] { w.send(static_cast<int>(i)); });
    }
    for (std::size_t i = 0; i < workers.size(); ++i) s.wait();
    assert(sum == 45);
  });
}
