// SPDX-License-Identifier: Apache-2.0
// file: regular files by every way of making the calls, pipes and FIFOs, errors and closing; for
// goroutines and plain threads.
#include "weft/file.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "file/file_fd.h"
#include "support/net.h"
#include "unit/sched/support.h"
#include "weft/chan.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft::file_test {
namespace {

using namespace std::chrono_literals;
using sched_test::run_on_each;
using test::in;
using test::open_descriptors;
using test::text_of;

template <class F>
void everywhere(F f) {
  run_on_each(f);
  std::thread(f).join();
}

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/weft_file_XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir = name;
    path = dir + "/f";
  }
  void TearDown() override {
    ::unlink(path.c_str());
    ::rmdir(dir.c_str());
  }
  std::string dir, path;
};

std::string contents(const file& f) {
  std::string s(static_cast<std::size_t>(f.size()), '\0');
  EXPECT_EQ(f.read_at(std::span(s), 0), s.size());
  return s;
}

TEST_F(FileTest, WriteAndReadBack) {
  everywhere([&] {
    const file f = file::create(path);
    EXPECT_EQ(f.name(), path);
    EXPECT_EQ(f.write_all("hello, "), 7U);
    EXPECT_EQ(f.write_all("world"), 5U);
    EXPECT_EQ(f.size(), 12);
    f.sync();
    std::array<char, 5> b{};
    EXPECT_EQ(f.read_some(b), 0U);  // the position is at the end
    EXPECT_EQ(f.seek(7, SEEK_SET), 7);
    EXPECT_EQ(f.read_some(b), 5U);
    EXPECT_EQ(std::string(b.data(), 5), "world");
    EXPECT_EQ(f.read_some(std::span<char>()), 0U);
    EXPECT_EQ(f.read_at(std::span(b), 10), 2U);  // the end comes first
    EXPECT_EQ(f.read_at(std::span(b), 12), 0U);
    EXPECT_EQ(f.read_at(std::span(b), 1000), 0U);
    EXPECT_EQ(f.write_at("W", 7), 1U);
    EXPECT_EQ(f.write_at("!", 12), 1U);
    EXPECT_EQ(f.seek(0, SEEK_CUR), 12);  // none of them moved it
    EXPECT_EQ(contents(f), "hello, World!");
    f.truncate(5);
    EXPECT_EQ(contents(f), "hello");
  });
}

TEST_F(FileTest, FlagsAndModes) {
  everywhere([&] {
    ::unlink(path.c_str());
    std::error_code ec;
    EXPECT_FALSE(file::open(path, ec));
    EXPECT_EQ(ec, std::errc::no_such_file_or_directory);
    { const file f = file::open(path, O_WRONLY | O_CREAT | O_EXCL, 0600); }
    struct ::stat st {};
    ASSERT_EQ(::stat(path.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777U, 0600U);
    EXPECT_FALSE(file::open(path, O_WRONLY | O_CREAT | O_EXCL, ec));
    EXPECT_EQ(ec, std::errc::file_exists);
    const file a = file::open(path, O_WRONLY | O_APPEND);
    EXPECT_NE(::fcntl(a.fd(), F_GETFD) & FD_CLOEXEC, 0);
    a.write_all("one");
    a.write_all("two");
    EXPECT_EQ(a.write_at("x", 0, ec), 0U);  // the kernel would append
    EXPECT_EQ(ec, std::errc::invalid_argument);
    const file r = file::open(path);
    EXPECT_EQ(contents(r), "onetwo");
    EXPECT_EQ(r.write_all("x", ec), 0U);
    EXPECT_EQ(ec, std::errc::bad_file_descriptor);
    EXPECT_EQ(r.write_at("x", -1, ec), 0U);
    EXPECT_EQ(ec, std::errc::invalid_argument);
  });
}

TEST_F(FileTest, Texts) {
  everywhere([&] {
    EXPECT_EQ(text_of([] { (void)file::open("/no/such"); }),
              "open /no/such: no such file or directory");
    const file d = file::open("/tmp");
    std::array<char, 1> b;
    EXPECT_EQ(text_of([&] { d.read_some(b); }), "read /tmp: is a directory");
    const file f = file::create(path);
    EXPECT_EQ(text_of([&] { f.set_deadline(in(1s)); }),
              "set deadline " + path + ": file type does not support deadline");
    EXPECT_EQ(text_of([&] { f.seek(-1, SEEK_SET); }), "seek " + path + ": invalid argument");
    EXPECT_EQ(text_of([&] { f.read_at(b, -1); }), "readat " + path + ": negative offset");
    EXPECT_EQ(text_of([&] { f.write_at("x", -1); }), "writeat " + path + ": negative offset");
    EXPECT_EQ(text_of([] { (void)file::open(""); }), "open : no such file or directory");
    const file a = file::open(path, O_WRONLY | O_APPEND);
    EXPECT_EQ(text_of([&] { a.write_at("x", 0); }),
              "os: invalid use of WriteAt on file opened with O_APPEND");
    try {
      f.read_at(b, -1);
    } catch (const path_error& e) {
      EXPECT_EQ(e.code(), std::errc::invalid_argument);
    }
    f.close();
    EXPECT_EQ(f.fd(), -1);
    EXPECT_EQ(text_of([&] { f.close(); }), "close " + path + ": file already closed");
    EXPECT_EQ(text_of([&] { f.read_some(b); }), "read " + path + ": file already closed");
    EXPECT_EQ(text_of([&] { f.read_at(std::span(b), 0); }),
              "read " + path + ": file already closed");
    EXPECT_EQ(text_of([&] { f.write_all("x"); }), "write " + path + ": file already closed");
    EXPECT_EQ(text_of([&] { f.sync(); }), "sync " + path + ": file already closed");
    EXPECT_EQ(text_of([&] { f.stat(); }), "stat " + path + ": file already closed");
    EXPECT_EQ(text_of([] { file().close(); }), "close: file already closed");
    try {
      (void)file::open("/no/such");
    } catch (const path_error& e) {
      EXPECT_EQ(e.code(), std::errc::no_such_file_or_directory);
      EXPECT_FALSE(e.timeout());
    }
  });
}

TEST_F(FileTest, PathsOfTheStandardLibrary) {
  const std::filesystem::path p = std::filesystem::path(dir) / "f";
  std::error_code ec;
  EXPECT_FALSE(file::open(p, ec));
  EXPECT_EQ(ec, std::errc::no_such_file_or_directory);
  file::create(p).write_all("text");
  EXPECT_TRUE(file::create(p, ec));
  EXPECT_EQ(file::open(p).name(), path);
  EXPECT_TRUE(file::open(std::filesystem::path(dir) / "f", O_RDWR));
  EXPECT_TRUE(file::open(p, O_RDWR, 0600, ec));
  EXPECT_TRUE(file::open(p, O_RDWR, ec));
  EXPECT_TRUE(file::open({path.data(), path.size()}));
}

TEST_F(FileTest, OwnsItsDescriptor) {
  const int before = open_descriptors();
  {
    file a = file::create(path);
    const int n = a.fd();
    file b(std::move(a));
    EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(a.fd(), -1);
    EXPECT_EQ(b.fd(), n);
    b = file::create(path);
    EXPECT_EQ(open_descriptors(), before + 1);
    std::error_code ec;
    EXPECT_FALSE(file::adopt(-1, "none", ec));
    EXPECT_EQ(ec, std::errc::bad_file_descriptor);
    EXPECT_FALSE(file::open(std::string_view("/dev/null\0x", 11), ec));
    EXPECT_EQ(ec, std::errc::invalid_argument);
  }
  EXPECT_EQ(open_descriptors(), before);
}

// Each writes its own part; in between all of them are read.
TEST_F(FileTest, ManyAtOnce) {
  run_on_each([&] {
    constexpr int parts = 16, size = 4096;
    const file f = file::create(path);
    scope s;
    for (int i = 0; i < parts; ++i) {
      s.go([&, i] {
        const std::string mine(size, static_cast<char>('a' + i));
        std::string back(size, '\0');
        for (int n = 0; n < 20; ++n) {
          f.write_at(mine, i * size);
          EXPECT_EQ(f.read_at(std::span(back), i * size), back.size());
          ASSERT_EQ(back, mine);
        }
      });
    }
    s.wait();
    EXPECT_EQ(f.size(), parts * size);
  });
}

TEST_F(FileTest, AFullDiskIsAShortWriteAndAnError) {
  const rlim_t limit = 10'000;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{limit, old.rlim_max};
  const auto was = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  everywhere([&] {
    const file f = file::create(path);
    const std::string data(3 * limit, 'x');
    std::error_code ec;
    EXPECT_EQ(f.write_all(data, ec), limit);
    EXPECT_EQ(ec, std::errc::file_too_large);
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, was);
}

// -- pipes, FIFOs: these wait in the poller

TEST_F(FileTest, APipeBlocksBothSides) {
  everywhere([] {
    const auto [r, w] = file::pipe();
    std::thread writer([&w = w] {
      std::this_thread::sleep_for(2ms);
      w.write_all(std::string(1 << 20, 'x'));  // far more than it holds
      w.close();
    });
    std::array<char, 1000> b;
    std::size_t sum = 0;
    while (const std::size_t n = r.read_some(b)) sum += n;
    EXPECT_EQ(sum, 1U << 20);
    writer.join();
  });
}

TEST_F(FileTest, NobodyReads) {
  everywhere([] {
    const auto [r, w] = file::pipe();
    r.close();
    EXPECT_EQ(text_of([&w = w] { w.write_all("x"); }), "write |1: broken pipe");  // and no SIGPIPE
  });
  int fd[2];
  ASSERT_EQ(::pipe2(fd, O_CLOEXEC), 0);  // in blocking mode
  ::close(fd[0]);
  const file w = file::adopt(fd[1], "w");
  EXPECT_EQ(text_of([&] { w.write_all("x"); }), "write w: broken pipe");
}

TEST_F(FileTest, DeadlinesOfAPipe) {
  everywhere([] {
    const auto [r, w] = file::pipe();
    r.set_deadline(in(2ms));
    std::array<char, 4> b;
    EXPECT_EQ(text_of([&r = r, &b] { r.read_some(b); }), "read |0: i/o timeout");
    r.set_deadline(clock::time_point::max());
    w.write_all("more");
    EXPECT_EQ(r.read_some(b), 4U);
    std::error_code ec;
    EXPECT_EQ(r.read_at(std::span(b), 0, ec), 0U);
    EXPECT_EQ(ec, std::errc::invalid_seek);
  });
}

TEST_F(FileTest, AFifoIsOpenedFromBothSides) {
  run_on_each([&] {
    ::unlink(path.c_str());
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    scope s;
    s.go([&] {
      const file w = file::open(path, O_WRONLY);  // waits for the reader
      sleep_for(2ms);
      w.write_all("through");
    });
    const file r = file::open(path);
    std::string got(16, '\0');
    const std::size_t n = r.read_some(std::span(got));
    EXPECT_EQ(got.substr(0, n), "through");
    s.wait();
    EXPECT_EQ(r.read_some(std::span(got)), 0U);
  });
}

TEST_F(FileTest, WaitingReadersHoldNoThread) {
  run_on_each([] {
    const std::uint64_t before = debug::runtime_stats().threads;
    std::vector<std::pair<file, file>> pipes;
    for (int i = 0; i < 100; ++i) pipes.push_back(file::pipe());
    scope s;
    for (auto& p : pipes) {
      s.go([&p] {
        std::array<char, 1> b;
        EXPECT_EQ(p.first.read_some(b), 1U);
      });
    }
    sleep_for(5ms);
    EXPECT_LT(debug::runtime_stats().threads, before + 50);
    for (auto& p : pipes) p.second.write_all("x");
    s.wait();
  });
}

}  // namespace
}  // namespace weft::file_test
