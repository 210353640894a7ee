// SPDX-License-Identifier: Apache-2.0
// Where the socket of debug::attach lies, and which places are refused.
#include "debug/attach_path.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "support/process.h"

namespace weft::attach_path {
namespace {

TEST(AttachPath, Names) {
  name n;
  EXPECT_TRUE(parse("17.4026531836", n));
  EXPECT_EQ(n.pid, 17);
  EXPECT_EQ(n.space, 4026531836U);
  EXPECT_EQ(n.text(), "17.4026531836");
  for (const char* bad : {"", ".", "..", "17", "17.", "17.x", "x.17", "0.17", "-1.17", "17.1 "})
    EXPECT_FALSE(parse(bad, n)) << bad;
  EXPECT_EQ(own_name().pid, ::getpid());
  EXPECT_NE(own_name().space, 0U);
  EXPECT_TRUE(fits("/run/user/1000/weft"));
  EXPECT_FALSE(fits(std::string(100, 'x')));
}

TEST(AttachPath, PlacesThatAreRefused) {
  std::string dir = "/tmp/weft-place-XXXXXX";
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  const std::string own = dir + "/own", link = dir + "/link";
  ASSERT_EQ(::mkdir(own.c_str(), 0700), 0);
  ASSERT_EQ(::symlink(own.c_str(), link.c_str()), 0);
  const uid_t uid = ::geteuid();
  EXPECT_EQ(wrong_with(own, uid), "");
  EXPECT_EQ(wrong_with(link, uid), link + " is a symbolic link");
  EXPECT_EQ(wrong_with(own, uid + 1), own + " belongs to user " + std::to_string(uid));
  EXPECT_EQ(wrong_with("/dev/null", 0), "/dev/null is not a directory");
  EXPECT_EQ(wrong_with(dir + "/none", uid), dir + "/none: No such file or directory");
  ::chmod(own.c_str(), 0750);
  EXPECT_EQ(wrong_with(own, uid), own + " is open to other users");
  test::run_process({"rm", "-r", dir}, std::chrono::seconds(60));
}

}  // namespace
}  // namespace weft::attach_path
