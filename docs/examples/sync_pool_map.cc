// SPDX-License-Identifier: Apache-2.0
// Buffers that are used again, and a map that everybody writes to.
#include <cassert>
#include <memory>
#include <string>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    weft::object_pool<std::string> buffers([] { return std::make_unique<std::string>(); });
    weft::concurrent_map<int, std::string> pages;
    weft::wait_group wg;
    for (int i = 0; i < 100; ++i) {
      wg.go([&, i] {
        auto b = buffers.get();  // one that somebody has put back, else a new one
        b->append("page ").append(std::to_string(i));
        pages.store(i, *b);
        b->clear();
        buffers.put(std::move(b));
      });
    }
    wg.wait();
    assert(pages.load(42) == "page 42");
    assert(!pages.load_or_store(100, "new").second && pages.compare_and_swap(100, "new", "old"));
    int n = 0;
    pages.range([&](int, const std::string&) { ++n; });
    assert(n == 101);
  });
}
