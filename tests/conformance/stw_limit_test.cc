// SPDX-License-Identifier: Apache-2.0
// STW-05, STW-06, STW-08 and STW-09: the default number of Ps from the CPU limit and the affinity
// mask, and the files it is read from. Each limit is read from a cgroup tree in a temporary
// directory, so that the machine's own CPUs and limits do not matter. What the runtime adds (live
// updates, the environment variable, the switch that turns the limit off) is tested with the
// runtime.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sched.h>
#include <string>

#include "os/cgroup.h"
#include "os/cpu.h"

namespace weft::rt {
namespace {

namespace fs = std::filesystem;
constexpr int many_cpus = 16;

// A v2 hierarchy with one cgroup, and the number of Ps that its limit gives.
class v2_tree {
 public:
  v2_tree() {
    std::string pattern = testing::TempDir() + "/weft-limit-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    root_ = pattern;
    cgroup_ = root_ / "cgroup";
    mountinfo_ = root_ / "mountinfo";
    fs::create_directories(root_ / "sys/app");
    std::ofstream(cgroup_) << "0::/app\n";
    std::ofstream(mountinfo_) << "30 20 0:26 / /sys rw - cgroup2 cgroup2 rw\n";
  }
  ~v2_tree() { fs::remove_all(root_); }

  cpu_quota limit(const std::string& cpu_max) const {
    std::ofstream(root_ / "sys/app/cpu.max") << cpu_max << '\n';
    cpu_limit reader({cgroup_.c_str(), mountinfo_.c_str(), root_.c_str()});
    const auto got = reader.read();
    EXPECT_TRUE(got.ok());
    return got.value;
  }
  int procs(const std::string& cpu_max, int cpus = many_cpus) const {
    return default_procs(cpus, limit(cpu_max));
  }

 private:
  fs::path root_, cgroup_, mountinfo_;
};

TEST(Conformance, STW_05_QuotaGivesProcs) {
  const v2_tree tree;
  EXPECT_EQ(tree.procs("300000 100000"), 3);
}

TEST(Conformance, STW_05_NoQuotaGivesTheCpuCount) {
  const v2_tree tree;
  EXPECT_EQ(tree.procs("max 100000"), many_cpus);
  EXPECT_EQ(tree.procs("max 100000", 1), 1);
  EXPECT_EQ(default_procs(many_cpus, cpu_quota{}), many_cpus);  // nobody looked: awareness off
}

TEST(Conformance, STW_05_QuotaAboveTheCpuCountGivesTheCpuCount) {
  const v2_tree tree;
  EXPECT_EQ(tree.procs(std::to_string(2 * many_cpus) + "00000 100000"), many_cpus);
  EXPECT_EQ(tree.procs("300000 100000", 2), 2);
  EXPECT_EQ(tree.procs("300000 100000", 1), 1);
}

TEST(Conformance, STW_05_AffinityBeatsQuota) {
  cpu_set_t before, two;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&two);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &two);
  }
  if (CPU_COUNT(&two) < 2) GTEST_SKIP() << "needs two CPUs";
  const v2_tree tree;
  ASSERT_EQ(sched_setaffinity(0, sizeof two, &two), 0);
  const int procs = tree.procs("300000 100000", online_cpus_allowed());
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(procs, 2);
}

TEST(Conformance, STW_06_FractionsRoundUp) {
  const v2_tree tree;
  for (const char* quota : {"200001", "250000", "299999"}) {
    EXPECT_EQ(tree.procs(std::string(quota) + " 100000"), 3) << quota;
  }
}

TEST(Conformance, STW_06_NeverBelowTwo) {
  const v2_tree tree;
  for (const char* quota : {"50000", "100000", "150000"}) {
    EXPECT_EQ(tree.procs(std::string(quota) + " 100000"), 2) << quota;
    EXPECT_EQ(tree.procs(std::string(quota) + " 100000", 1), 1)
        << quota;  // but never more than CPUs
  }
}

TEST(Conformance, STW_08_LimitFiles) {
  EXPECT_EQ(parse_v1_number("-1\n").value, -1);
  EXPECT_EQ(parse_v1_number("420000\n").value, 420000);
  for (const char* text : {"420000", "420000us\n", "max\n", "420000 100000\n", "max 100000\n"}) {
    EXPECT_EQ(parse_v1_number(text).error, cgroup_error::malformed) << text;
  }
  EXPECT_TRUE(parse_v2_limit("max 100000\n").ok());
  EXPECT_FALSE(parse_v2_limit("max 100000\n").value.limited());
  EXPECT_EQ(parse_v2_limit("25000 50000\n").value.ratio(), 0.5);
  EXPECT_EQ(parse_v2_limit("500000 200000\n").value.ratio(), 2.5);
  EXPECT_EQ(parse_v2_limit("1000000 200000\n").value.ratio(), 5);
  for (const char* text :
       {"-1\n", "420000\n", "420000 100000", "420000us 100000\n", "420000 100ms\n"}) {
    EXPECT_EQ(parse_v2_limit(text).error, cgroup_error::malformed) << text;
  }
}

TEST(Conformance, STW_08_OwnCgroup) {
  path_buffer path;
  auto got = parse_cpu_cgroup("7:cpuset:/s\n6:cpuacct,cpu:/v1\n0::/v2\n", path);
  EXPECT_EQ(got.value, cgroup_version::v1);
  EXPECT_EQ(path.view(), "/v1");
  got = parse_cpu_cgroup("0::/v2\n6:cpu:/v1\n", path);
  EXPECT_EQ(got.value, cgroup_version::v1);
  got = parse_cpu_cgroup("6:cpuacct:/v1\n0::/v2\n", path);
  EXPECT_EQ(got.value, cgroup_version::v2);
  EXPECT_EQ(path.view(), "/v2");

  EXPECT_EQ(parse_cpu_cgroup("", path).error, cgroup_error::no_cgroup);
  EXPECT_EQ(parse_cpu_cgroup("0::/" + std::string(4096, 'x') + "\n", path).error,
            cgroup_error::too_long);
  EXPECT_EQ(parse_cpu_cgroup("0::/" + std::string(1 << 20, 'x') + "\n", path).error,
            cgroup_error::too_long);
  for (const char* text : {"\n", "0\n", "0:\n", "0::\n", "0::v2\n"}) {
    EXPECT_EQ(parse_cpu_cgroup(text, path).error, cgroup_error::malformed) << text;
  }
  EXPECT_TRUE(contains_cpu("cpuset,cpu"));
  EXPECT_FALSE(contains_cpu("cpuset,cpuacct"));
}

std::string mount_line(const std::string& root, const std::string& point) {
  return "30 20 0:26 " + root + " " + point + " rw shared:4 - cgroup2 cgroup2 rw\n";
}

TEST(Conformance, STW_09_FirstMountThatReachesOurs) {
  path_buffer path;
  const std::string text = "28 20 0:9 / /v1 rw - cgroup cgroup rw,cpu\n" +
                           mount_line("/sand", "/not-a-component") +
                           mount_line("/sandbox/job/x", "/below") +
                           mount_line("/sandbox", "/here") + mount_line("/", "/second");
  ASSERT_TRUE(parse_cpu_mount(text, "/sandbox/job", cgroup_version::v2, path).ok());
  EXPECT_EQ(path.view(), "/here/job");
  ASSERT_TRUE(parse_cpu_mount(text, "/sandbox/job", cgroup_version::v1, path).ok());
  EXPECT_EQ(path.view(), "/v1/sandbox/job");
}

TEST(Conformance, STW_09_EscapesAndGiantLines) {
  path_buffer path;
  const std::string overlay =
      "29 20 0:8 / /merged rw - overlay overlay rw,lowerdir=" + std::string(1 << 20, 'l') +
      ",cpu\n";
  const std::string text = overlay + mount_line(R"(/a\040b)", R"(/m\011n\134o)") + overlay;
  ASSERT_TRUE(parse_cpu_mount(text, "/a b/c", cgroup_version::v2, path).ok());
  EXPECT_EQ(path.view(), "/m\tn\\o/c");
  char out[8];
  for (const char* bad : {R"(\)", R"(\12)", R"(\128)", R"(\x41)", R"(\444)", "123456789"}) {
    EXPECT_FALSE(unescape_path(bad, out, sizeof out).ok()) << bad;
  }
}

TEST(Conformance, STW_09_NamespaceRoots) {
  path_buffer path;
  const std::string text = mount_line("/../..", "/near") + mount_line("/../../..", "/far");
  ASSERT_TRUE(parse_cpu_mount(text, "/../../../svc", cgroup_version::v2, path).ok());
  EXPECT_EQ(path.view(), "/far/svc");
  ASSERT_TRUE(parse_cpu_mount(text, "/../../..", cgroup_version::v2, path).ok());
  EXPECT_EQ(path.view(), "/far");
  EXPECT_EQ(parse_cpu_mount(text, "/../../../../svc", cgroup_version::v2, path).error,
            cgroup_error::no_cgroup);
}

TEST(Conformance, STW_09_MalformedLines) {
  path_buffer path;
  for (const char* text :
       {"\n", "30\n", "30 20 0:26\n", "30 20 0:26 /\n", "30 20 0:26 / /cg\n",
        "30 20 0:26 / /cg rw\n", "30 20 0:26 / /cg rw -\n", "30 20 0:26 / /cg rw - \n",
        "30 20 0:26 / /cg rw - cgroup\n", "30 20 0:26 / /cg rw - cgroup cgroup\n",
        "30 20 0:26 x /cg rw - cgroup cgroup rw,cpu\n"}) {
    EXPECT_EQ(parse_cpu_mount(text, "/", cgroup_version::v1, path).error, cgroup_error::malformed)
        << text;
  }
}

}  // namespace
}  // namespace weft::rt
