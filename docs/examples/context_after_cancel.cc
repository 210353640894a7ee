// SPDX-License-Identifier: Apache-2.0
// An example of docs/context.md.
#include <cassert>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    auto [ctx, cancel] = weft::with_cancel(weft::background());
    bool closed = false;
    weft::stop_fn close = weft::after_cancel(ctx, [&] { closed = true; });
    weft::stop_fn warn = weft::after_cancel(ctx, [] { assert(false); });
    assert(warn());  // it will never run

    cancel();          // does not wait for the functions
    assert(!close());  // too late
    close.wait();
    assert(closed);
  });
}
