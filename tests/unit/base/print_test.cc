// SPDX-License-Identifier: Apache-2.0
// base/print.h: what the printer writes, byte for byte, to a pipe.
#include "base/print.h"

#include <cerrno>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <unistd.h>

#include "unit/support.h"

namespace weft::rt {
namespace {

// What f prints.
template <class F>
std::string printed(F f) {
  int fds[2];
  if (::pipe(fds) != 0) return "no pipe";
  {
    printer out(fds[1]);
    f(out);
  }
  ::close(fds[1]);
  std::string text;
  unit_test::detail::read_all(fds[0], text);
  return text;
}

template <class T>
std::string number(T v) {
  return printed([v](printer& out) { out << v; });
}

TEST(Print, UnsignedNumbers) {
  EXPECT_EQ(number(std::uint64_t{0}), "0");
  EXPECT_EQ(number(std::uint64_t{9}), "9");
  EXPECT_EQ(number(std::uint64_t{10}), "10");
  EXPECT_EQ(number(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(number(std::numeric_limits<std::uint32_t>::max()), "4294967295");
}

TEST(Print, SignedNumbers) {
  EXPECT_EQ(number(0), "0");
  EXPECT_EQ(number(-1), "-1");
  EXPECT_EQ(number(std::numeric_limits<int>::min()), "-2147483648");
  EXPECT_EQ(number(std::numeric_limits<std::int64_t>::max()), "9223372036854775807");
  EXPECT_EQ(number(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
}

TEST(Print, Hex) {
  const auto hex = [](std::uint64_t v) { return printed([v](printer& out) { out.hex(v); }); };
  EXPECT_EQ(hex(0), "0x0");
  EXPECT_EQ(hex(0xdeadbeef), "0xdeadbeef");
  EXPECT_EQ(hex(~std::uint64_t{0}), "0xffffffffffffffff");
}

TEST(Print, TextAndNumbersInOrder) {
  EXPECT_EQ(printed([](printer& out) {
              out << "goroutine " << std::uint64_t{7} << ' ' << std::string_view("[running]") << ':'
                  << '\n';
            }),
            "goroutine 7 [running]:\n");
  EXPECT_EQ(printed([](printer& out) { out << "" << std::string_view(); }), "");
}

TEST(Print, LongTextIsSplitAndNothingIsLost) {
  std::string text;
  for (int i = 0; text.size() < 5000; ++i) text += std::to_string(i) + ",";
  EXPECT_EQ(printed([&](printer& out) { out << text; }), text);
  // Lengths around the size of the buffer, with a number that straddles the border.
  for (std::size_t n = 500; n < 530; ++n) {
    const std::string head(n, 'x');
    EXPECT_EQ(printed([&](printer& out) { out << head << std::uint64_t{123456789} << "end"; }),
              head + "123456789end")
        << n;
  }
}

TEST(Print, FlushWritesAtOnceAndOnlyOnce) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  {
    printer out(fds[1]);
    out << "first";
    out.flush();
    char buf[16];
    EXPECT_EQ(::read(fds[0], buf, sizeof buf), 5);
    out << "second";
  }
  ::close(fds[1]);
  std::string rest;
  unit_test::detail::read_all(fds[0], rest);
  EXPECT_EQ(rest, "second");
}

TEST(Print, LeavesErrnoAloneEvenIfNobodyListens) {
  errno = 77;
  {
    printer out(-1);
    out << std::string(2000, 'x');
  }
  EXPECT_EQ(errno, 77);
}

}  // namespace
}  // namespace weft::rt
