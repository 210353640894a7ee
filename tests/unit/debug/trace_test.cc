// SPDX-License-Identifier: Apache-2.0
// The stack walker, the symbols and the byte reader, each by itself.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "debug/cfi.h"
#include "debug/reader.h"
#include "debug/symbols.h"
#include "debug/traces.h"

namespace weft::rt {
namespace {

constexpr std::size_t reach = 64 * 1024;  // of this thread's stack, upwards from here

[[gnu::noinline]] std::vector<std::uintptr_t> walk_here(cfi_cache* cache) {
  std::vector<std::uintptr_t> pcs;
  const registers here = registers_here();
  stack_walk w(here, here.sp(), here.sp() + reach / 8, false, cache);
  do {
    pcs.push_back(w.pc());
  } while (w.up() && pcs.size() < 8);
  return pcs;
}

[[gnu::noinline]] std::vector<std::uintptr_t> outer(cfi_cache* cache) {
  auto v = walk_here(cache);
  v.push_back(0);  // not a tail call
  return v;
}

TEST(Walker, FindsTheCallers) {
  arena memory;
  symbols names(memory, false);
  const auto pcs = outer(nullptr);
  ASSERT_GE(pcs.size(), 3U);
  EXPECT_NE(names.at(pcs[0], false).all_lines.find("walk_here"), std::string_view::npos);
  EXPECT_NE(names.at(pcs[1], false).all_lines.find("outer"), std::string_view::npos);
  EXPECT_NE(names.at(pcs[2], false).all_lines.find("FindsTheCallers"), std::string_view::npos)
      << names.at(pcs[2], false).all_lines;
}

TEST(Walker, TheCacheChangesNothing) {
  arena memory;
  auto* cache = memory.array<cfi_cache>(1);
  std::vector<std::vector<std::uintptr_t>> seen;
  for (int i = 0; i < 3; ++i) seen.push_back(outer(i == 0 ? nullptr : cache));
  for (std::size_t i = 1; i < seen.size(); ++i) {
    ASSERT_EQ(seen[i].size(), seen[0].size());
    EXPECT_TRUE(std::equal(seen[i].begin(), seen[i].begin() + 2, seen[0].begin()));
  }
}

// Nothing outside the bounds is read: with none at all the walk ends at once.
TEST(Walker, StaysWithinTheStack) {
  const registers here = registers_here();
  stack_walk w(here, here.sp(), here.sp(), false, nullptr);
  EXPECT_FALSE(w.up());
}

TEST(Walker, NonsenseEndsIt) {
  registers r;
  r.r[cfi_pc] = 0x1234;
  alignas(16) std::uintptr_t stack[64] = {};
  r.r[cfi_sp] = r.r[cfi_fp] = reinterpret_cast<std::uintptr_t>(stack);
  stack_walk w(r, r.sp(), r.sp() + sizeof stack, false, nullptr);
  EXPECT_FALSE(w.up());
}

[[gnu::always_inline]] inline std::uintptr_t inlined_here() { return registers_here().pc(); }

TEST(Symbols, InlinedCallsComeFirst) {
  arena memory;
  symbols names(memory, false);
  const std::string text(names.at(inlined_here(), false).all_lines);
  const std::size_t in = text.find("inlined_here(...)\n\t/"), body = text.find("TestBody()\n\t/");
  EXPECT_NE(in, std::string::npos) << text;
  EXPECT_NE(body, std::string::npos) << text;
  EXPECT_LT(in, body) << text;
  EXPECT_NE(text.find("trace_test.cc:"), std::string::npos) << text;
}

TEST(Symbols, CodeWithoutDebugInformation) {
  arena memory;
  symbols names(memory, false);
  const auto pc = reinterpret_cast<std::uintptr_t>(
      static_cast<void (*)(std::exception_ptr)>(&std::rethrow_exception));
  EXPECT_TRUE(names.at(pc, true).all_lines.starts_with("std::rethrow_exception()\n"))
      << names.at(pc, true).all_lines;
}

TEST(Symbols, AnAddressOfNobody) {
  arena memory;
  symbols names(memory, true);
  EXPECT_EQ(names.at(0x10, true).lines, "?()\n\t0x10\n");
}

TEST(Cursor, NeverReadsPastItsEnd) {
  const std::uint8_t bytes[] = {0x80, 0x80, 0x80};
  cursor c(bytes, bytes + sizeof bytes);
  EXPECT_EQ(c.uleb(), 0U);  // never ends
  EXPECT_TRUE(c.failed());
  cursor d(bytes, bytes + sizeof bytes);
  EXPECT_EQ(d.fixed<std::uint64_t>(), 0U);
  EXPECT_TRUE(d.failed());
  cursor e(bytes, bytes + sizeof bytes);
  EXPECT_STREQ(e.text(), "");
  EXPECT_TRUE(e.failed());
  cursor f(bytes, bytes + sizeof bytes);
  EXPECT_EQ(f.part(4).left(), 0U);
  EXPECT_TRUE(f.failed());
}

TEST(Cursor, Numbers) {
  const std::uint8_t bytes[] = {0xe5, 0x8e, 0x26, 0x9b, 0xf1, 0x59, 0x7f, 0x01, 0x02, 0x03, 'a', 0};
  cursor c(bytes, bytes + sizeof bytes);
  EXPECT_EQ(c.uleb(), 624485U);
  EXPECT_EQ(c.sleb(), -624485);
  EXPECT_EQ(c.sleb(), -1);
  EXPECT_EQ(c.uint(3), 0x030201U);
  EXPECT_STREQ(c.text(), "a");
  EXPECT_TRUE(c.done());
  EXPECT_FALSE(c.failed());
}

}  // namespace
}  // namespace weft::rt
