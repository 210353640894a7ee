// SPDX-License-Identifier: Apache-2.0
// An example of docs/context.md.
#include <cassert>
#include <thread>
#include <weft/weft.hpp>

int main() {
  // A thread's token cancels a context, and a context's token stops what knows only tokens.
  std::jthread worker([](std::stop_token token) {
    auto [ctx, cancel] = weft::with_cancel(weft::background(), token);
    ctx.done().recv();
    assert(ctx.err() == weft::errc::canceled);
  });
  worker.request_stop();

  auto [ctx, cancel] = weft::with_cancel(weft::background());
  bool told = false;
  std::stop_callback tell(ctx.stop_token(), [&] { told = true; });
  cancel();
  assert(told);
}
