// SPDX-License-Identifier: Apache-2.0
// Programs that end with a report in which a place of theirs must be found: where it threw, parked
// or started a goroutine.
#include <atomic>
#include <stdexcept>
#include <string_view>

#include "weft/weft.hpp"

namespace {

[[gnu::noinline]] void throw_first() { throw std::runtime_error("first"); }
[[gnu::noinline]] void throw_second() { throw std::runtime_error("second"); }
[[gnu::noinline]] void park_down_there() {
  weft::yield(), weft::sleep_for(std::chrono::seconds(1));
}

std::atomic<bool> first_unwinds{false};
struct unwinds_for_ever {
  ~unwinds_for_ever() {
    first_unwinds = true;
    weft::select();
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const auto run = [](auto f) { return weft::run(f); };
  // Written into the blocks of main, as users do: their functions lie there in the DWARF too.
  if (what == "local-lambda") {
    volatile int status = run([] {  // a variable: then the block has addresses
      weft::scope s;
      s.go([] { weft::select(); });  // started here
      s.wait();                      // waits here
    });
    return status;
  }
  if (what == "second-thrower-reports") {
    return run([] {
      weft::go([] {
        const unwinds_for_ever u;
        throw_first();
      });
      while (!first_unwinds) weft::yield();
      weft::go([] { throw_second(); });
      weft::select();
    });
  }
  if (what == "wait-group") {
    return run([] {
      weft::wait_group wg;
      wg.go([] { throw_first(); });
      wg.wait();
    });
  }
  if (what == "parks-on-the-system-stack") {
    return run([] { weft::on_system_stack([] { park_down_there(); }); });
  }
  return 1;
}
