// SPDX-License-Identifier: Apache-2.0
// An example of docs/context.md.
#include <atomic>
#include <cassert>
#include <optional>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    weft::chan<int> jobs;
    std::atomic<int> done{0};
    auto [ctx, cancel] = weft::with_cancel(weft::background());
    {
      weft::scope workers;
      for (int i = 0; i < 4; ++i) {
        workers.go([&, ctx = ctx] {
          while (!ctx.err()) {
            weft::select(weft::recv(ctx.done()),
                         weft::recv(jobs, [&](std::optional<int> j) { done += *j; }));
          }
        });
      }
      for (int i = 0; i < 10; ++i) jobs.send(1);
      cancel();
    }
    assert(done == 10);
    assert(ctx.err() == weft::errc::canceled);
    assert(ctx.err().message() == "context canceled");
  });
}
