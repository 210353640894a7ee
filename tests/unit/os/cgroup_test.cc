// SPDX-License-Identifier: Apache-2.0
// os/cgroup.h: the parsers by table, the reader on trees made in a temporary directory, and, where
// the machine allows it, on a real cgroup. The fixture checks that no descriptor stays open.
// Long because it is mostly tables, and the reader's tests build on the parsers' sample lines.
#include "os/cgroup.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <malloc.h>
#include <random>
#include <string>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace weft::rt {

// For the messages of failed tests.
static void PrintTo(cgroup_error e, std::ostream* os) {
  static constexpr const char* names[] = {"none",       "no_cgroup",  "malformed", "too_long",
                                          "bad_escape", "unreadable", "again"};
  *os << names[static_cast<int>(e)];
}

namespace {

namespace fs = std::filesystem;
using enum cgroup_error;
constexpr auto v1 = cgroup_version::v1;
constexpr auto v2 = cgroup_version::v2;

// ---- limit files ----

TEST(CgroupParse, V1Number) {
  struct row {
    std::string_view text;
    std::int64_t value;
    cgroup_error error = none;
  };
  for (const row& r : std::initializer_list<row>{
           {"-1\n", -1},
           {"0\n", 0},
           {"75000\n", 75000},
           {"9223372036854775807\n", INT64_MAX},
           {"-9223372036854775808\n", INT64_MIN},
           {"9223372036854775808\n", 0, malformed},
           {"99999999999999999999999999\n", 0, malformed},
           {"", 0, malformed},
           {"\n", 0, malformed},
           {"-\n", 0, malformed},
           {"+1\n", 0, malformed},
           {" 1\n", 0, malformed},
           {"75000", 0, malformed},          // no newline: the file was cut
           {"75000us\n", 0, malformed},      // trailing text
           {"75000\nmore\n", 0, malformed},  // a second line
           {"75000\n\n", 0, malformed},
           {"0x10\n", 0, malformed},
           {"75000 100000\n", 0, malformed},  // a v2 file
           {"max 100000\n", 0, malformed},
           {"max\n", 0, malformed},
       }) {
    const auto got = parse_v1_number(r.text);
    EXPECT_EQ(got.error, r.error) << '"' << r.text << '"';
    EXPECT_EQ(got.value, r.value) << '"' << r.text << '"';
  }
}

TEST(CgroupParse, V2Limit) {
  struct row {
    std::string_view text;
    double ratio;  // below 0: no limit
    cgroup_error error = none;
  };
  for (const row& r : std::initializer_list<row>{
           {"max 100000\n", -1},
           {"max 1\n", -1},
           {"10000 20000\n", 0.5},
           {"125000 50000\n", 2.5},
           {"5000000 1000000\n", 5},
           {"0 100000\n", 0},
           {"9223372036854775807 9223372036854775807\n", 1},
           {"", -1, malformed},
           {"\n", -1, malformed},
           {" \n", -1, malformed},
           {"max\n", -1, malformed},
           {"max \n", -1, malformed},
           {"max 100000", -1, malformed},
           {"maximum 100000\n", -1, malformed},
           {"max max\n", -1, malformed},
           {"125000 50000", -1, malformed},
           {"125000 50000 \n", -1, malformed},
           {"125000  50000\n", -1, malformed},
           {"125000 50000 1\n", -1, malformed},
           {"125000 50000\n1\n", -1, malformed},
           {"125000\n", -1, malformed},  // a v1 file
           {"-1\n", -1, malformed},
           {"-1 100000\n", -1, malformed},
           {"125000 0\n", -1, malformed},
           {"125000 -5\n", -1, malformed},
           {"125e3 50000\n", -1, malformed},
           {"125000 50ms\n", -1, malformed},
           {"9223372036854775808 100000\n", -1, malformed},
       }) {
    const auto got = parse_v2_limit(r.text);
    EXPECT_EQ(got.error, r.error) << '"' << r.text << '"';
    EXPECT_EQ(got.value.limited(), r.ratio >= 0) << '"' << r.text << '"';
    if (got.value.limited()) {
      EXPECT_EQ(got.value.ratio(), r.ratio) << '"' << r.text << '"';
    }
  }
}

TEST(CgroupParse, ContainsCpu) {
  for (const char* list :
       {"cpu", "cpu,cpuacct", "cpuacct,cpu", "cpuset,cpu,cpuacct", ",cpu", "cpu,", "rw,cpu,"}) {
    EXPECT_TRUE(contains_cpu(list)) << list;
  }
  for (const char* list : {"", ",", ",,", "cpuacct", "cpuset", "cpuset,cpuacct", "cp", "c,p,u",
                           "CPU", "xcpu", "cpu ", "name=cpu", "cpu.max"}) {
    EXPECT_FALSE(contains_cpu(list)) << list;
  }
}

TEST(CgroupParse, PathBufferKeepsRoomForItsZero) {
  const std::string longest(path_buffer::capacity - 1, 'p');
  path_buffer path;
  EXPECT_TRUE(path.append(""));
  EXPECT_TRUE(path.assign(longest));
  EXPECT_EQ(path.c_str(), longest);
  EXPECT_FALSE(path.push('x'));
  EXPECT_FALSE(path.append("x"));
  EXPECT_TRUE(path.append(std::string_view{}));
  EXPECT_EQ(path.view(), longest);
  EXPECT_FALSE(path.assign(longest + "p"));
  for (const char c : longest) EXPECT_TRUE(path.push(c));
  EXPECT_FALSE(path.push('x'));
  EXPECT_EQ(path.c_str(), longest);
}

// ---- escapes ----

TEST(CgroupParse, UnescapePath) {
  struct row {
    std::string_view in, out;
  };
  for (const row& r : std::initializer_list<row>{
           {"", ""},
           {"/plain/path", "/plain/path"},
           {R"(/my\040dir)", "/my dir"},
           {R"(/t\011t/n\012n)", "/t\tt/n\nn"},
           {R"(/back\134slash)", R"(/back\slash)"},
           {R"(\057first)", "/first"},
           {R"(last\040)", "last "},
           {R"(\134\134040)", R"(\\040)"},  // decoded once only
           {R"(/hash\043)", "/hash#"},
           {R"(\377\001)", "\xff\x01"},
           {"/\xfe\xff\\040", "/\xfe\xff "},
       }) {
    char out[64];
    const auto got = unescape_path(r.in, out, sizeof out);
    ASSERT_TRUE(got.ok()) << r.in;
    EXPECT_EQ(std::string_view(out, got.value), r.out);

    std::string same(r.in);  // in place
    const auto again_in_place = unescape_path(same, same.data(), same.size());
    ASSERT_TRUE(again_in_place.ok()) << r.in;
    EXPECT_EQ(same.substr(0, again_in_place.value), r.out);
  }
}

TEST(CgroupParse, UnescapePathRefuses) {
  char out[64];
  for (const char* in : {R"(\)", R"(/a\)", R"(/a\0)", R"(/a\04)", R"(/a\x20)", R"(/a\n)",
                         R"(/a\048)", R"(/a\400)", R"(/a\777)", R"(/a\\040)", R"(/a\000)"}) {
    EXPECT_EQ(unescape_path(in, out, sizeof out).error, bad_escape) << in;
  }
  EXPECT_EQ(unescape_path("12345", out, 4).error, too_long);
  EXPECT_TRUE(unescape_path("1234", out, 4).ok());
  EXPECT_EQ(unescape_path(R"(\061\062\063)", out, 2).error, too_long);
  EXPECT_TRUE(unescape_path(R"(\061\062\063)", out, 3).ok());
}

// ---- /proc/self/cgroup ----

TEST(CgroupParse, CpuCgroup) {
  struct row {
    std::string_view text;
    cgroup_version version;
    std::string_view path;
  };
  for (const row& r : std::initializer_list<row>{
           {"0::/\n", v2, "/"},
           {"0::/user.slice/app.scope\n", v2, "/user.slice/app.scope"},
           {"0::/with:colons::and spaces\\040\n", v2, "/with:colons::and spaces\\040"},
           {"0::/../../other\n", v2, "/../../other"},
           {"4:cpu:/one\n", v1, "/one"},
           {"9:memory:/m\n5:cpuset:/s\n4:cpuacct,cpu:/one/two\n", v1, "/one/two"},
           // Hybrid: v1 wins, before or behind the v2 line.
           {"4:cpu,cpuacct:/one\n1:name=systemd:/x\n0::/unified\n", v1, "/one"},
           {"0::/a/longer/unified/path\n4:cpu,cpuacct:/one\n", v1, "/one"},
           // Hybrid without v1 cpu: the controller is in v2.
           {"4:cpuacct:/one\n3:cpuset:/two\n1:name=systemd:/x\n0::/unified\n", v2, "/unified"},
           {"0::/unified\n4:cpuacct:/one\n", v2, "/unified"},
           // Hierarchy 10 is not hierarchy 0.
           {"10:cpu:/ten\n0::/zero\n", v1, "/ten"},
           // Hierarchy 0 is v2 whatever stands beside it.
           {"0:cpu:/zero\n", v2, "/zero"},
       }) {
    path_buffer out;
    const auto got = parse_cpu_cgroup(r.text, out);
    EXPECT_EQ(got.error, none) << r.text;
    EXPECT_EQ(got.value, r.version) << r.text;
    EXPECT_EQ(out.view(), r.path) << r.text;
  }
}

TEST(CgroupParse, CpuCgroupRefuses) {
  const std::string longest(path_buffer::capacity - 2,
                            'n');  // with its slash as long as a path may be
  struct row {
    std::string text;
    cgroup_error error;
  };
  for (const row& r : std::initializer_list<row>{
           {"", no_cgroup},
           {"3:memory:/m\n2:cpuacct,cpuset:/s\n", no_cgroup},
           {"\n", malformed},
           {"0", malformed},
           {"0\n", malformed},
           {"0:\n", malformed},
           {"0:/path\n", malformed},
           {"0::\n", malformed},
           {"0::relative\n", malformed},
           {":cpu:/x\n", malformed},
           {"4:cpu:\n", malformed},
           {"0::/cut", malformed},  // no newline: the file was cut
           {"0::/fine\n\n", malformed},
           {"0::/fine\n3:memory\n", malformed},  // any line counts until v1 is found
           {"0::/" + longest + "n\n", too_long},
           {"4:cpu:/" + longest + "n\n", too_long},
           {"3:memory:/" + longest + "n\n0::/x\n", too_long},
           {"0::/" + std::string(100'000, 'n') + "\n", too_long},
       }) {
    path_buffer out;
    EXPECT_EQ(parse_cpu_cgroup(r.text, out).error, r.error) << r.text.substr(0, 60);
  }
  path_buffer out;
  EXPECT_TRUE(parse_cpu_cgroup("0::/" + longest + "\n", out).ok());
  EXPECT_EQ(out.view(), "/" + longest);
}

// ---- /proc/self/mountinfo ----

const std::string other_mounts =
    "20 1 8:2 / / rw,noatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro\n"
    "21 20 0:5 / /dev rw,nosuid shared:2 master:3 - devtmpfs udev rw,size=1k\n"
    "22 20 0:20 / /proc rw - proc proc rw\n"
    "23 20 0:4 net:[4026531840] /run/netns/blue rw shared:7 - nsfs nsfs rw\n"
    "24 20 0:44 / /mnt/unnamed rw - tmpfs  rw\n";

std::string v2_mount(const std::string& root, const std::string& point) {
  return "30 20 0:26 " + root + " " + point +
         " rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
}
std::string v1_mount(const std::string& root, const std::string& point,
                     const std::string& controllers) {
  return "31 20 0:27 " + root + " " + point + " rw,nosuid - cgroup cgroup rw," + controllers + "\n";
}

struct mount_row {
  const char* what;
  std::string text;
  std::string cgroup;
  cgroup_version version;
  std::string path;  // expected, its mount point first
  std::string mount;
};

std::vector<mount_row> good_mounts() {
  const std::string hybrid = other_mounts + v1_mount("/", "/cg/cpuacct", "cpuacct") +
                             v1_mount("/", "/cg/cpuset", "cpuset") + v2_mount("/", "/cg/unified") +
                             v1_mount("/", "/cg/cpu", "cpu") + v1_mount("/", "/cg/second", "cpu");
  const std::string nested = v2_mount("/sand", "/wrong/prefix") +
                             v2_mount("/stone", "/wrong/name") +
                             v2_mount("/sandbox/job/deeper", "/wrong/below") +
                             v2_mount("/sandbox", "/right") + v2_mount("/", "/too/late");
  const std::string layers(300'000, 'l');
  const std::string giant =
      "25 20 0:50 / /merged rw - overlay overlay rw,lowerdir=" + layers + ",cpu,upperdir=/u\n";
  const std::string deep(9'000, 'd');
  const std::string giant_paths =
      "26 20 0:51 /" + deep + " /" + deep + " rw - ext4 " + deep + " rw\n";
  std::string escaped, plain;  // as long as a path may be, half of it escapes
  for (std::size_t i = 0; i < (path_buffer::capacity - 2) / 2; ++i)
    escaped += "\\040e", plain += " e";
  return {
      {"v1", other_mounts + v1_mount("/", "/cg/cpu", "cpu,cpuacct"), "/", v1, "/cg/cpu", "/cg/cpu"},
      {"v1 below", v1_mount("/", "/cg/cpu", "cpuacct,cpu"), "/a/b", v1, "/cg/cpu/a/b", "/cg/cpu"},
      {"v2", other_mounts + v2_mount("/", "/cg"), "/", v2, "/cg", "/cg"},
      {"v2 below", other_mounts + v2_mount("/", "/cg"), "/a/b", v2, "/cg/a/b", "/cg"},
      {"hybrid, v1 asked", hybrid, "/job", v1, "/cg/cpu/job", "/cg/cpu"},
      {"hybrid, v2 asked", hybrid, "/job", v2, "/cg/unified/job", "/cg/unified"},
      {"no newline at the end", "30 20 0:26 / /cg rw - cgroup2 none rw", "/a", v2, "/cg/a", "/cg"},
      {"many tags",
       "30 20 0:26 / /cg rw shared:1 master:2 propagate_from:3 unbindable - cgroup2 none rw\n",
       "/a", v2, "/cg/a", "/cg"},
      {"root by path component", other_mounts + nested, "/sandbox/job", v2, "/right/job", "/right"},
      {"root equals cgroup", nested, "/sandbox", v2, "/right", "/right"},
      {"escaped mount point", v2_mount("/", R"(/my\040cg\134x)"), "/a", v2, R"(/my cg\x/a)",
       R"(/my cg\x)"},
      {"escaped root", v2_mount(R"(/tab\011)", "/cg"), "/tab\t/a", v2, "/cg/a", "/cg"},
      {"backslash in the cgroup", v2_mount(R"(/b\134)", "/cg"), R"(/b\/a)", v2, "/cg/a", "/cg"},
      {"giant overlay", giant + v2_mount("/", "/cg") + giant, "/a", v2, "/cg/a", "/cg"},
      {"giant overlay, v1", giant + giant_paths + v1_mount("/", "/cg", "cpu"), "/a", v1, "/cg/a",
       "/cg"},
      {"giant options", v1_mount("/", "/cg", layers + ",cpu"), "/a", v1, "/cg/a", "/cg"},
      {"longest escaped path", v2_mount("/", "/" + escaped), "/", v2, "/" + plain, "/" + plain},
      {"bad escape elsewhere", "9 1 0:1 /\\1 /\\2 rw - ext4 x rw\n" + v2_mount("/", "/cg"), "/", v2,
       "/cg", "/cg"},
      // Seen from a cgroup namespace, where our cgroup is not below its root.
      {"namespace", v2_mount("/", "/no") + v2_mount("/..", "/no") + v2_mount("/../../..", "/yes"),
       "/../../../app", v2, "/yes/app", "/yes"},
      {"namespace, at the root", v2_mount("/../..", "/no") + v2_mount("/../../..", "/yes"),
       "/../../..", v2, "/yes", "/yes"},
      {"namespace, too far up", v2_mount("/../../../..", "/no") + v2_mount("/../../../app", "/yes"),
       "/../../../app", v2, "/yes", "/yes"},
      {"two dots are a name's start", v2_mount("/", "/cg"), "/..hidden", v2, "/cg/..hidden", "/cg"},
  };
}

TEST(CgroupParse, CpuMount) {
  for (const mount_row& r : good_mounts()) {
    path_buffer out;
    const auto got = parse_cpu_mount(r.text, r.cgroup, r.version, out);
    EXPECT_EQ(got.error, none) << r.what;
    EXPECT_EQ(out.view(), r.path) << r.what;
    EXPECT_EQ(got.value, r.mount.size()) << r.what;
  }
}

TEST(CgroupParse, CpuMountPrefix) {
  path_buffer out;
  const auto got = parse_cpu_mount(v2_mount("/", "/cg"), "/a", v2, out, "/fake/tree");
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(out.view(), "/fake/tree/cg/a");
  EXPECT_EQ(got.value, std::string_view("/fake/tree/cg").size());
}

TEST(CgroupParse, CpuMountRefuses) {
  const std::string longest(path_buffer::capacity - 2, 'n');
  struct row {
    std::string text;
    cgroup_error error;
    std::string cgroup = "/";
    cgroup_version version = v1;
  };
  for (const row& r : std::initializer_list<row>{
           {"", no_cgroup},
           {other_mounts, no_cgroup},
           {v1_mount("/", "/cg", "cpuacct"), no_cgroup},
           {v1_mount("/", "/cg", "cpu"), no_cgroup, "/", v2},
           {v2_mount("/", "/cg"), no_cgroup, "/", v1},
           {v2_mount("/sand", "/cg"), no_cgroup, "/sandbox", v2},
           {v2_mount("/sandbox", "/cg"), no_cgroup, "/sand", v2},
           {v2_mount("/..", "/cg"), no_cgroup, "/", v2},
           {v2_mount("/", "/cg"), no_cgroup, "/..", v2},
           {v2_mount("/", "/cg"), no_cgroup, "/../app", v2},
           {v2_mount("/..", "/cg"), no_cgroup, "/../../app", v2},
           // The form, cut at every field.
           {"\n", malformed},
           {" \n", malformed},
           {"31\n", malformed},
           {"31 20\n", malformed},
           {"31 20 0:27\n", malformed},
           {"31 20 0:27 /\n", malformed},
           {"31 20 0:27 / /cg\n", malformed},
           {"31 20 0:27 / /cg rw\n", malformed},
           {"31 20 0:27 / /cg rw shared:1\n", malformed},
           {"31 20 0:27 / /cg rw -\n", malformed},
           {"31 20 0:27 / /cg rw - \n", malformed},
           {"31 20 0:27 / /cg rw -  cgroup cpu\n", malformed},
           {"31 20 0:27 / /cg rw - cgroup\n", malformed},
           {"31 20 0:27 / /cg rw - cgroup cgroup\n", malformed},
           {"31 20 0:27 / /cg rw - cgroup cgroup", malformed},
           {"31 20 0:27 / /cg - cgroup cgroup cpu\n", malformed},  // no mount options
           {"31 20 0:27 sub /cg rw - cgroup cgroup cpu\n", malformed},
           {"31 20 0:27  /cg rw - cgroup cgroup cpu\n", malformed},
           {"31 20 0:27 / cg rw - cgroup cgroup cpu\n", malformed},
           {"20 1 8:2 / / rw -\n" + v1_mount("/", "/cg", "cpu"), malformed},
           {v1_mount(R"(/\1)", "/cg", "cpu"), bad_escape},
           {v1_mount(R"(/\999)", "/cg", "cpu"), bad_escape},
           {v1_mount("/", R"(/cg\04)", "cpu"), bad_escape},
           {v1_mount("/", R"(/cg\777)", "cpu"), bad_escape},
           {v2_mount("/", "/" + longest), too_long, "/a", v2},
           {v2_mount("/", "/" + longest + "n"), too_long, "/", v2},
       }) {
    path_buffer out;
    EXPECT_EQ(parse_cpu_mount(r.text, r.cgroup, r.version, out).error, r.error)
        << r.text.substr(0, 100) << " for " << r.cgroup;
  }
}

// ---- text and descriptor give the same ----

class memory_file {
 public:
  explicit memory_file(std::string_view text) : fd_(memfd_create("weft-test", MFD_CLOEXEC)) {
    EXPECT_EQ(::write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  ~memory_file() { ::close(fd_); }
  int rewound() const {
    ::lseek(fd_, 0, SEEK_SET);
    return fd_;
  }

 private:
  int fd_;
};

void expect_same_in_pieces(const std::string& text, const std::string& cgroup,
                           cgroup_version version, std::initializer_list<std::size_t> sizes) {
  path_buffer whole_own, whole_dir;
  const auto own = parse_cpu_cgroup(text, whole_own);
  const auto dir = parse_cpu_mount(text, cgroup, version, whole_dir);
  const memory_file file(text);
  for (const std::size_t size : sizes) {
    std::vector<char> chunk(size);
    path_buffer out;
    byte_reader first(file.rewound(), chunk.data(), size);
    const auto own_in_pieces = parse_cpu_cgroup(first, out);
    ASSERT_EQ(own_in_pieces.error, own.error) << text;
    ASSERT_EQ(own_in_pieces.value, own.value) << text;
    if (own.ok()) {
      ASSERT_EQ(out.view(), whole_own.view()) << text;
    }

    byte_reader second(file.rewound(), chunk.data(), size);
    const auto dir_in_pieces = parse_cpu_mount(second, cgroup, version, out);
    ASSERT_EQ(dir_in_pieces.error, dir.error) << text;
    ASSERT_EQ(dir_in_pieces.value, dir.value) << text;
    if (dir.ok()) {
      ASSERT_EQ(out.view(), whole_dir.view()) << text;
    }
  }
}

TEST(CgroupParse, PiecesGiveTheSame) {
  for (const mount_row& r : good_mounts()) {
    expect_same_in_pieces(r.text, r.cgroup, r.version, {7, 61, 512, 4096});
  }
}

// Broken text must give an error or an answer, never more; and the same one however it is cut up.
TEST(CgroupParse, RandomDamage) {
  std::mt19937 random(static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed()) + 1);
  const std::vector<std::string> seeds = {
      other_mounts + v1_mount("/", "/cg/cpu", "cpu") + v2_mount("/", "/cg"),
      v2_mount("/sandbox", "/right") + v2_mount("/../..", R"(/esc\040aped)"),
      "4:cpu,cpuacct:/one\n1:name=systemd:/x\n0::/unified\n",
  };
  constexpr std::string_view alphabet = "\n :/\\-.,cpu0147g2r";
  for (int round = 0; round < 3000; ++round) {
    std::string text = seeds[random() % seeds.size()];
    for (auto edits = 1 + random() % 4; edits-- > 0 && !text.empty();) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        default:
          text.resize(at);
          break;
      }
    }
    const auto version = random() % 2 != 0 ? v1 : v2;
    expect_same_in_pieces(text, random() % 2 != 0 ? "/sandbox/a" : "/../../b", version, {3, 64});
    (void)parse_v1_number(text);
    (void)parse_v2_limit(text);
    (void)contains_cpu(text);
    std::string out = text;
    const auto n = unescape_path(text, out.data(), out.size());
    if (n.ok()) {
      ASSERT_LE(n.value, text.size());
    }
    if (HasFatalFailure()) return;
  }
}

TEST(CgroupParse, ReadErrors) {
  char chunk[16];
  path_buffer out;
  const int directory = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  byte_reader first(directory, chunk, sizeof chunk);
  EXPECT_EQ(parse_cpu_cgroup(first, out).error, unreadable);
  byte_reader second(directory, chunk, sizeof chunk);
  EXPECT_EQ(parse_cpu_mount(second, "/", v2, out).error, unreadable);
  ::close(directory);
}

// ---- fractions ----

TEST(CgroupLimit, TighterIsExact) {
  const cpu_quota unlimited;
  EXPECT_FALSE(tighter(unlimited, unlimited).limited());
  EXPECT_EQ(tighter(unlimited, {5, 2}).quota_us, 5);
  EXPECT_EQ(tighter({5, 2}, unlimited).quota_us, 5);
  EXPECT_EQ(tighter({300000, 100000}, {50000, 10000}).quota_us, 300000);
  EXPECT_EQ(tighter({50000, 10000}, {300000, 100000}).quota_us, 300000);
  EXPECT_EQ(tighter({0, 1}, {1, 1000}).quota_us, 0);
  // These two differ by less than a double can tell, and their cross products need 126 bits.
  const cpu_quota less{INT64_MAX - 1, INT64_MAX}, one{INT64_MAX, INT64_MAX};
  EXPECT_EQ(tighter(less, one).quota_us, INT64_MAX - 1);
  EXPECT_EQ(tighter(one, less).quota_us, INT64_MAX - 1);
}

TEST(CgroupLimit, DefaultProcs) {
  const cpu_quota none_set;
  struct row {
    int cpus;
    cpu_quota limit;
    int procs;
  };
  for (const row& r : std::initializer_list<row>{
           {8, none_set, 8},
           {1, none_set, 1},
           {0, none_set, 1},
           {-3, none_set, 1},
           {8, {300000, 100000}, 3},
           {8, {200000, 100000}, 2},
           {8, {200001, 100000}, 3},
           {8, {700001, 100000}, 8},
           {8, {800000, 100000}, 8},
           {8, {900000, 100000}, 8},
           {8, {100000, 100000}, 2},
           {8, {1000, 1000000}, 2},
           {8, {0, 100000}, 2},
           {1, {50000, 100000}, 1},
           {1, {500000, 100000}, 1},
           {2, {300000, 100000}, 2},
           {INT_MAX, {INT64_MAX, 1}, INT_MAX},
           {INT_MAX, {INT64_MAX, INT64_MAX - 1}, 2},
       }) {
    EXPECT_EQ(default_procs(r.cpus, r.limit), r.procs)
        << r.cpus << " CPUs, " << r.limit.quota_us << '/' << r.limit.period_us;
  }
}

// ---- cpu_limit on a tree of our own ----

std::size_t open_descriptors() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

class CpuLimit : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/weft-cgroup-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
    proc_cgroup = root / "proc_cgroup";
    mountinfo = root / "mountinfo";
    fs::permissions(root, fs::perms{0711});
    descriptors = open_descriptors();
  }
  void TearDown() override {
    EXPECT_EQ(open_descriptors(), descriptors);
    fs::remove_all(root);
  }

  cgroup_roots roots() const { return {proc_cgroup.c_str(), mountinfo.c_str(), root.c_str()}; }
  static void write(const fs::path& file, std::string_view text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::trunc) << text;
  }
  void max(std::string_view cgroup, std::string_view text) const {
    write(root / ("cg" + std::string(cgroup)) / "cpu.max", text);
  }
  void cfs(std::string_view cgroup, std::string_view quota, std::string_view period) const {
    const fs::path dir = root / ("cg" + std::string(cgroup));
    write(dir / "cpu.cfs_quota_us", quota);
    write(dir / "cpu.cfs_period_us", period);
  }
  void use_v2(std::string_view cgroup) const {
    write(proc_cgroup, "0::" + std::string(cgroup) + "\n");
    write(mountinfo, other_mounts + v2_mount("/", "/cg"));
  }
  void use_v1(std::string_view cgroup) const {
    write(proc_cgroup, "9:memory:/m\n3:cpu,cpuacct:" + std::string(cgroup) + "\n0::/\n");
    write(mountinfo,
          other_mounts + v2_mount("/", "/unified") + v1_mount("/", "/cg", "cpu,cpuacct"));
  }

  fs::path root;
  std::string proc_cgroup, mountinfo;
  std::size_t descriptors = 0;
};

void expect_limit(const parsed<cpu_quota>& got, std::int64_t quota, std::int64_t period,
                  cgroup_error error = none) {
  EXPECT_EQ(got.error, error);
  EXPECT_EQ(got.value.quota_us, quota);
  if (quota >= 0) {
    EXPECT_EQ(got.value.period_us, period);
  }
}
void expect_no_limit(const parsed<cpu_quota>& got, cgroup_error error = none) {
  EXPECT_EQ(got.error, error);
  EXPECT_FALSE(got.value.limited());
}

TEST_F(CpuLimit, V2) {
  use_v2("/app");
  max("/app", "300000 100000\n");
  cpu_limit limit(roots());
  EXPECT_EQ(limit.levels(), 0);
  expect_limit(limit.read(), 300000, 100000);
  EXPECT_EQ(limit.version(), v2);
  EXPECT_EQ(limit.path(), (root / "cg/app").string());
  EXPECT_EQ(limit.levels(), 2);
}

TEST_F(CpuLimit, V1) {
  use_v1("/app");
  cfs("/app", "250000\n", "50000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 250000, 50000);
  EXPECT_EQ(limit.version(), v1);
  cfs("/app", "-1\n", "50000\n");
  expect_no_limit(limit.read());
  fs::remove(root / "cg/app/cpu.cfs_period_us");  // of no interest without a quota
  expect_no_limit(limit.read());
}

TEST_F(CpuLimit, HybridReadsOnlyTheOneThatHasTheController) {
  use_v1("/app");
  write(root / "unified/cpu.max", "100000 100000\n");
  max("/app", "100000 100000\n");
  cfs("/app", "400000\n", "100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 400000, 100000);

  write(proc_cgroup, "9:cpuacct:/app\n0::/\n");  // v1 without cpu
  cpu_limit other(roots());
  expect_limit(other.read(), 100000, 100000);
  EXPECT_EQ(other.path(), (root / "unified").string());
}

TEST_F(CpuLimit, TheSmallestOfAllAncestorsWins) {
  use_v2("/a/b/c/d");
  max("/a/b/c/d", "400000 100000\n");
  max("/a/b/c", "max 100000\n");
  max("/a/b", "75000 50000\n");  // 1.5
  max("/a", "200000 100000\n");
  // The root of the hierarchy has no limit file.
  cpu_limit limit(roots());
  expect_limit(limit.read(), 75000, 50000);
  EXPECT_EQ(limit.levels(), 5);
  max("/a", "100000 100000\n");
  expect_limit(limit.read(), 100000, 100000);
  max("/a/b/c/d", "10000 100000\n");
  expect_limit(limit.read(), 10000, 100000);
  max("", "5000 100000\n");  // but in a container the mount's root may
  expect_limit(limit.read(), 5000, 100000);
  write(root / "cpu.max", "1000 100000\n");  // above the mount: not ours
  expect_limit(limit.read(), 5000, 100000);
}

TEST_F(CpuLimit, AncestorsInV1) {
  use_v1("/a/b");
  cfs("/a/b", "-1\n", "100000\n");
  cfs("/a", "150000\n", "100000\n");
  cfs("", "-1\n", "100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 150000, 100000);
  EXPECT_EQ(limit.levels(), 3);
}

TEST_F(CpuLimit, LevelsWithoutTheControllerAreSkipped) {
  use_v2("/a/b/c");
  fs::create_directories(root / "cg/a/b/c");
  max("/a", "200000 100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 200000, 100000);
}

TEST_F(CpuLimit, MountOfASubtreeEndsAtItsRoot) {
  write(proc_cgroup, "0::/pod/app\n");
  write(mountinfo, v2_mount("/po", "/no") + v2_mount("/pod", R"(/my\040cg)"));
  write(root / "my cg/app/cpu.max", "max 100000\n");
  write(root / "my cg/cpu.max", "350000 100000\n");
  write(root / "cpu.max", "1000 100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 350000, 100000);
  EXPECT_EQ(limit.levels(), 2);
}

TEST_F(CpuLimit, FollowsChanges) {
  use_v2("/app");
  max("/app", "300000 100000\n");
  cpu_limit limit(roots());
  EXPECT_EQ(default_procs(8, limit.read().value), 3);
  max("/app", "100000 100000\n");
  EXPECT_EQ(default_procs(8, limit.read().value), 2);
  max("/app", "300000 100000\n");
  EXPECT_EQ(default_procs(8, limit.read().value), 3);
  max("/app", "max 100000\n");
  EXPECT_EQ(default_procs(8, limit.read().value), 8);

  // Reading again looks at nothing but the limit files.
  fs::remove(proc_cgroup);
  fs::remove(mountinfo);
  for (int i = 0; i < 3 * cpu_limit::reads_per_check; ++i) {
    max("/app", std::to_string(100000 + i) + " 100000\n");
    expect_limit(limit.read(), 100000 + i, 100000);
  }
}

TEST_F(CpuLimit, FindsAVanishedPathAgain) {
  use_v2("/old");
  max("/old", "300000 100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 300000, 100000);

  fs::remove_all(root / "cg/old");
  use_v2("/new/place");
  max("/new/place", "250000 100000\n");
  expect_limit(limit.read(), 250000, 100000);  // at once
  EXPECT_EQ(limit.path(), (root / "cg/new/place").string());
  EXPECT_EQ(limit.levels(), 3);

  // From one version to the other.
  fs::remove_all(root / "cg/new");
  use_v1("/v1");
  cfs("/v1", "150000\n", "100000\n");
  expect_limit(limit.read(), 150000, 100000);
  EXPECT_EQ(limit.version(), v1);
}

TEST_F(CpuLimit, FindsTheSameCgroupUnderAnotherMount) {
  use_v2("/app");
  max("/app", "300000 100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 300000, 100000);
  fs::rename(root / "cg", root / "elsewhere");
  write(mountinfo, v2_mount("/", "/elsewhere"));
  expect_limit(limit.read(), 300000, 100000);
  EXPECT_EQ(limit.path(), (root / "elsewhere/app").string());
}

TEST_F(CpuLimit, AVanishedPathThatIsNowhereMeansNoLimit) {
  use_v2("/app");
  max("/app", "300000 100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 300000, 100000);
  fs::remove_all(root / "cg");
  expect_no_limit(limit.read(), no_cgroup);
  EXPECT_EQ(limit.levels(), 0);
  EXPECT_EQ(limit.path(), "");
  EXPECT_EQ(limit.version(), cgroup_version::unknown);

  max("/app", "300000 100000\n");  // and back: seen at the next check
  int reads = 0;
  while (!limit.read().value.limited() && reads <= cpu_limit::reads_per_check) ++reads;
  EXPECT_LE(reads, cpu_limit::reads_per_check);
  expect_limit(limit.read(), 300000, 100000);
}

TEST_F(CpuLimit, NoticesAMove) {
  use_v2("/old");
  max("/old", "300000 100000\n");
  max("/new", "500000 100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 300000, 100000);
  use_v2("/new");  // while /old stays
  for (int i = 1; i < cpu_limit::reads_per_check; ++i) expect_limit(limit.read(), 300000, 100000);
  expect_limit(limit.read(), 500000, 100000);

  // Moved to where no mount leads: the old limit is not ours.
  write(proc_cgroup, "0::/../out\n");
  for (int i = 1; i < cpu_limit::reads_per_check; ++i) expect_limit(limit.read(), 500000, 100000);
  expect_no_limit(limit.read(), no_cgroup);
}

TEST_F(CpuLimit, NoCgroupAtAll) {
  cpu_limit nothing(roots());
  expect_no_limit(nothing.read(), no_cgroup);

  write(proc_cgroup, "0::/app\n");
  cpu_limit no_mountinfo(roots());
  expect_no_limit(no_mountinfo.read(), no_cgroup);

  write(mountinfo, other_mounts);
  cpu_limit not_mounted(roots());
  expect_no_limit(not_mounted.read(), no_cgroup);

  write(mountinfo, other_mounts + v2_mount("/", "/cg"));
  cpu_limit no_directory(roots());
  expect_no_limit(no_directory.read(), no_cgroup);

  write(root / "cg/app", "a file");
  cpu_limit not_a_directory(roots());
  expect_no_limit(not_a_directory.read(), no_cgroup);

  for (int i = 0; i < 2 * cpu_limit::reads_per_check; ++i)
    expect_no_limit(not_a_directory.read(), no_cgroup);
}

TEST_F(CpuLimit, MalformedFiles) {
  write(proc_cgroup, "0::app\n");
  write(mountinfo, v2_mount("/", "/cg"));
  cpu_limit bad_cgroup(roots());
  expect_no_limit(bad_cgroup.read(), malformed);

  use_v2("/a/b");
  write(mountinfo, "30 20 0:26 /\n");
  cpu_limit bad_mountinfo(roots());
  expect_no_limit(bad_mountinfo.read(), malformed);

  // One bad level: its error is told, the others still count.
  use_v2("/a/b");
  max("/a/b", "-1\n");
  max("/a", "200000 100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 200000, 100000, malformed);
  max("/a/b", "150000 100000\n");
  max("/a", std::string(64, '1') + " 100000\n");
  expect_limit(limit.read(), 150000, 100000, malformed);
  max("/a", "");
  expect_limit(limit.read(), 150000, 100000, malformed);
  const std::string_view fine = "1000 100000\n";
  max("/a", std::string(64 - fine.size(), '0') + std::string(fine) + "but longer than any limit\n");
  expect_limit(limit.read(), 150000, 100000, malformed);
  max("/a", "max 100000\n");
  expect_limit(limit.read(), 150000, 100000);
}

TEST_F(CpuLimit, MalformedV1Files) {
  use_v1("/app");
  cfs("/app", "300000\n", "0\n");
  cpu_limit limit(roots());
  expect_no_limit(limit.read(), malformed);
  cfs("/app", "300000 100000\n", "100000\n");
  expect_no_limit(limit.read(), malformed);
  cfs("/app", "300000\n", "100000");
  expect_no_limit(limit.read(), malformed);
  fs::remove(root / "cg/app/cpu.cfs_period_us");
  expect_no_limit(limit.read(), unreadable);
  cfs("/app", "300000\n", "100000\n");
  expect_limit(limit.read(), 300000, 100000);
}

TEST_F(CpuLimit, UnreadableFiles) {
  use_v2("/a/b");
  max("/a", "200000 100000\n");
  fs::create_directories(root / "cg/a/b/cpu.max");  // a directory: opens, but does not read
  cpu_limit limit(roots());
  expect_limit(limit.read(), 200000, 100000, unreadable);
  fs::remove(root / "cg/a/b/cpu.max");
  fs::create_symlink("cpu.max", root / "cg/a/b/cpu.max");  // a loop: does not open
  expect_limit(limit.read(), 200000, 100000, unreadable);

  fs::remove(mountinfo);
  fs::create_directories(mountinfo);
  cpu_limit no_mountinfo(roots());
  expect_no_limit(no_mountinfo.read(), unreadable);
  fs::remove(proc_cgroup);
  fs::create_directories(proc_cgroup);
  cpu_limit no_cgroup_file(roots());
  expect_no_limit(no_cgroup_file.read(), unreadable);
}

TEST_F(CpuLimit, FilesWithoutPermission) {
  use_v2("/a/b");
  max("/a/b", "300000 100000\n");
  max("/a", "200000 100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 200000, 100000);
  fs::permissions(root / "cg/a/cpu.max", fs::perms::none);

  // Root may read everything; as nobody this thread may not.
  const int saved = ::geteuid() == 0 ? ::setfsuid(65534) : -1;
  const auto without_file = limit.read();
  if (saved >= 0) ::setfsuid(static_cast<uid_t>(saved));
  expect_limit(without_file, 300000, 100000, unreadable);

  fs::permissions(root / "cg/a/b", fs::perms::none);
  if (saved >= 0) ::setfsuid(65534);
  const auto without_directory = limit.read();
  if (saved >= 0) ::setfsuid(static_cast<uid_t>(saved));
  expect_no_limit(without_directory, unreadable);

  fs::permissions(root / "cg/a/b", fs::perms::all);
  fs::permissions(root / "cg/a/cpu.max", fs::perms::all);
  expect_limit(limit.read(), 200000, 100000);
}

// Out of descriptors says nothing about the limit: the last one stands until the kernel can be
// asked again.
TEST_F(CpuLimit, KeepsTheLastLimitWithoutDescriptors) {
  use_v2("/app");
  max("/app", "300000 100000\n");
  cpu_limit limit(roots());
  cpu_limit fresh(roots());
  expect_limit(limit.read(), 300000, 100000);

  rlimit saved;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &saved), 0);
  const rlimit no_more{0, saved.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &no_more), 0);
  std::vector<parsed<cpu_quota>> got;
  got.reserve(2 * cpu_limit::reads_per_check);
  for (int i = 0; i < 2 * cpu_limit::reads_per_check; ++i) got.push_back(limit.read());
  const auto got_fresh = fresh.read();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &saved), 0);

  for (const auto& one : got) expect_limit(one, 300000, 100000, again);
  expect_no_limit(got_fresh, again);
  expect_limit(limit.read(), 300000, 100000);
  expect_limit(fresh.read(), 300000, 100000);  // does not wait for the next check
}

// The same for each single open of a read and of a search: with k descriptors left the k+1st fails.
TEST_F(CpuLimit, ShortOfDescriptorsAtEveryStep) {
  use_v2("/a/b");
  max("/a/b", "300000 100000\n");
  max("/a", "250000 100000\n");
  rlimit saved;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &saved), 0);
  for (rlim_t spare = 0; spare < 4; ++spare) {
    cpu_limit limit(roots());
    cpu_limit fresh(roots());
    expect_limit(limit.read(), 250000, 100000);
    const int lowest = ::open("/", O_PATH | O_CLOEXEC);
    ::close(lowest);
    const rlimit few{static_cast<rlim_t>(lowest) + spare, saved.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto got = limit.read();
    const auto got_fresh = fresh.read();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &saved), 0);
    EXPECT_TRUE(got.error == none || got.error == again);
    EXPECT_EQ(got.value.quota_us, 250000) << spare;
    if (got_fresh.error == none) {
      EXPECT_EQ(got_fresh.value.quota_us, 250000) << spare;
    }
    expect_limit(limit.read(), 250000, 100000);
    expect_limit(fresh.read(), 250000, 100000);
  }
}

TEST_F(CpuLimit, VanishedWhileOutOfDescriptorsKeepsTheLast) {
  use_v2("/old");
  max("/old", "300000 100000\n");
  cpu_limit limit(roots());
  expect_limit(limit.read(), 300000, 100000);
  fs::remove_all(root / "cg/old");
  use_v2("/new");
  max("/new", "250000 100000\n");
  rlimit saved;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &saved), 0);
  const rlimit no_more{0, saved.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &no_more), 0);
  const auto got = limit.read();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &saved), 0);
  expect_limit(got, 300000, 100000, again);
  expect_limit(limit.read(), 250000, 100000);
}

TEST_F(CpuLimit, PathTooLong) {
  std::string deep;
  while (deep.size() < path_buffer::capacity - 40) deep += "/component-of-a-long-path";
  use_v2(deep);
  cpu_limit limit(roots());
  expect_no_limit(limit.read(), too_long);  // with the prefix
}

TEST_F(CpuLimit, AllocatesNothingAndLeavesErrnoAlone) {
  use_v2("/a/b");
  max("/a/b", "300000 100000\n");
  static constinit cpu_limit first_time;  // must need no code to construct
  cpu_limit limit(roots());
  const auto before = ::mallinfo2().uordblks;
  errno = 1234;
  for (int i = 0; i < 100; ++i) (void)limit.read();
  (void)first_time.read();
  EXPECT_EQ(errno, 1234);
  EXPECT_EQ(::mallinfo2().uordblks, before);
}

// ---- the machine we are on ----

TEST(CpuLimitHere, GivesSomethingSane) {
  cpu_limit limit;
  const auto got = limit.read();
  if (got.value.limited()) {
    EXPECT_GT(got.value.period_us, 0);
  }
  EXPECT_GE(default_procs(4, got.value), 2);
  EXPECT_LE(default_procs(4, got.value), 4);
}

// Runs `body` in a child that first moves itself into the cgroup at `dir`; its exit status counts
// failures.
template <class F>
int in_cgroup(const fs::path& dir, F body) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::ofstream procs(dir / "cgroup.procs");
    if (!(procs << "0" << std::flush)) ::_exit(99);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(CpuLimitHere, RealCgroup) {
  cpu_limit ours;
  const auto outside = ours.read();
  if (ours.levels() == 0) GTEST_SKIP() << "no CPU cgroup here";
  if (outside.value.limited()) GTEST_SKIP() << "limited already";
  const bool is_v1 = ours.version() == v1;
  const fs::path outer = fs::path(ours.path()) / ("weft-test-" + std::to_string(::getpid()));
  const fs::path inner = outer / "inner";
  std::error_code failed;
  fs::create_directories(inner, failed);
  if (failed) GTEST_SKIP() << "cannot create a cgroup: " << failed.message();
  const auto put = [is_v1](const fs::path& dir, const char* quota) {
    std::ofstream file(dir / (is_v1 ? "cpu.cfs_quota_us" : "cpu.max"));
    file << quota << std::flush;
    return file.good();
  };
  if (!is_v1) std::ofstream(outer / "cgroup.subtree_control") << "+cpu" << std::flush;
  const char* const off = is_v1 ? "-1" : "max";

  const int status = in_cgroup(inner, [&]() -> int {
    cpu_limit limit;
    int failures = 0;
    const auto expect = [&](double ratio) {
      const auto got = limit.read();
      const bool good = got.ok() && (ratio < 0 ? !got.value.limited() : got.value.ratio() == ratio);
      failures += !good;
    };
    if (!put(inner, "300000")) return 98;
    expect(3);
    failures += !put(inner, "100000");
    expect(1);
    failures += !put(inner, "300000");
    expect(3);
    failures += !put(inner, off);
    expect(-1);
    failures += !put(outer, "250000");  // the ancestor alone
    expect(2.5);
    failures += !put(inner, "150000");
    expect(1.5);
    failures += !put(outer, off);
    // Moved up, and the old directory removed: found again at once. A v2 cgroup takes processes
    // only while it hands no controller down.
    if (!is_v1) std::ofstream(outer / "cgroup.subtree_control") << "-cpu" << std::flush;
    std::ofstream(outer / "cgroup.procs") << "0" << std::flush;
    failures += ::rmdir(inner.c_str()) != 0;
    expect(-1);
    failures += limit.path() != outer.string();
    return failures;
  });
  ::rmdir(inner.c_str());
  ::rmdir(outer.c_str());
  if (status == 98 || status == 99) GTEST_SKIP() << "cannot use a cgroup of our own";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace weft::rt
