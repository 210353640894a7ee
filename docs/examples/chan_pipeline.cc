// SPDX-License-Identifier: Apache-2.0
// A pipeline of goroutines over channels.
#include <cassert>
#include <memory>
#include <string>
#include <weft/weft.hpp>

// One-way ends say what a function does with a channel.
void squares(weft::recv_chan<int> in, weft::send_chan<int> out) {
  for (int v : in) out.send(v * v);  // until `in` is closed and drained
  out.close();
}

int main() {
  return weft::run([] {
    weft::chan<int> numbers;     // unbuffered: a send waits for its receiver
    weft::chan<int> results(4);  // up to four values wait here
    weft::go(squares, numbers, results);
    weft::go([numbers] {
      for (int i = 1; i <= 5; ++i) numbers.send(i);
      numbers.close();
    });
    int sum = 0;
    while (std::optional<int> v = results.recv()) sum += *v;
    assert(sum == 55);

    // Values are moved, straight from the sender to a receiver that waits.
    weft::chan<std::unique_ptr<std::string>> owners(1);
    auto mine = std::make_unique<std::string>("mine");
    owners.send(std::move(mine));
    auto more = std::make_unique<std::string>("more");
    assert(!owners.try_send(std::move(more)));  // full: the value is still ours
    assert(*more == "more");
    assert(**owners.recv() == "mine");

    // A closed channel never blocks a receiver; sending on it throws.
    weft::chan<void> done;
    done.close();
    assert(!done.recv());
    try {
      done.send();
      assert(false);
    } catch (const weft::closed_channel& e) {
      assert(e.what() == std::string("send on closed channel"));
    }
  });
}
