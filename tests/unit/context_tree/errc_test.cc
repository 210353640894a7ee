// SPDX-License-Identifier: Apache-2.0
// weft's error codes: texts, category, equivalence to the standard's conditions.
#include <gtest/gtest.h>
#include <string>
#include <system_error>

#include "weft/context.hpp"

namespace weft {
namespace {

TEST(Errc, HasGosTexts) {
  EXPECT_EQ(make_error_code(errc::canceled).message(), "context canceled");
  EXPECT_EQ(make_error_code(errc::deadline_exceeded).message(), "context deadline exceeded");
  EXPECT_EQ(make_error_code(errc::closed).message(), "use of closed network connection");
  EXPECT_EQ(make_error_code(errc::unexpected_eof).message(), "unexpected EOF");
  EXPECT_EQ(make_error_code(errc::not_pollable).message(), "not pollable");
  EXPECT_EQ(std::error_code(77, weft_category()).message(), "unknown error");
  EXPECT_STREQ(make_error_code(errc::canceled).category().name(), "weft");
}

TEST(Errc, IsEquivalentToTheStandardsConditions) {
  EXPECT_EQ(make_error_code(errc::canceled), std::errc::operation_canceled);
  EXPECT_EQ(make_error_code(errc::deadline_exceeded), std::errc::timed_out);
  EXPECT_EQ(make_error_code(errc::closed), std::errc::bad_file_descriptor);
  EXPECT_EQ(make_error_code(errc::unexpected_eof), std::errc::io_error);
  EXPECT_EQ(make_error_code(errc::not_pollable), std::errc::operation_not_supported);
  EXPECT_NE(make_error_code(errc::canceled), std::errc::timed_out);
}

TEST(Errc, ConvertsByItself) {
  const std::error_code e = errc::canceled;
  EXPECT_TRUE(e == errc::canceled);
  EXPECT_TRUE(e != errc::closed);
  EXPECT_EQ(std::system_error(errc::deadline_exceeded).what(),
            std::string("context deadline exceeded"));
}

}  // namespace
}  // namespace weft
