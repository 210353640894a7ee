// SPDX-License-Identifier: Apache-2.0
// An example of docs/context.md.
#include <cassert>
#include <chrono>
#include <stdexcept>
#include <string>
#include <weft/weft.hpp>

using namespace std::chrono_literals;

int main() {
  return weft::run([] {
    auto too_slow = std::make_exception_ptr(std::runtime_error("the index did not answer"));
    auto [ctx, cancel] = weft::with_timeout(weft::background(), 5ms, too_slow);
    auto [inner, cancel_inner] = weft::with_timeout(ctx, 1h);
    assert(inner.deadline() == ctx.deadline());  // the earlier one wins

    weft::chan<int> answer;
    weft::select(weft::recv(answer), weft::recv(inner.done()));
    assert(inner.err() == weft::errc::deadline_exceeded);
    assert(inner.err() == std::errc::timed_out);  // and to the standard library it is this
    try {
      std::rethrow_exception(inner.cause());
    } catch (const std::runtime_error& e) {
      assert(e.what() == std::string("the index did not answer"));
    }
  });
}
