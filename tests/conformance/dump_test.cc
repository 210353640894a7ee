// SPDX-License-Identifier: Apache-2.0
// debug::dump against Go's form: SPN-07, SPN-08, DED-09, and what each block says.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <gtest/gtest.h>
#include <ostream>
#include <regex>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "sched/sched.h"
#include "support/dumped.h"
#include "support/leaks.h"
#include "support/runtime.h"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

std::size_t blocks(const std::string& text) {
  std::size_t n = text.starts_with("goroutine ") ? 1 : 0;
  for (std::size_t at = 0; (at = text.find("\n\ngoroutine ", at)) != std::string::npos; ++at) ++n;
  return n;
}

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

[[gnu::noinline]] void sleeper(chan<int> c) { (void)c.recv(); }

bool all_wait(std::size_t n) {
  return eventually([n] { return debug::runtime_stats().waiting == n; });
}

TEST(Conformance, SPN_07_as_many_blocks_as_goroutines) {
  run_clean([] {
    chan<int> c;
    EXPECT_EQ(blocks(dumped()), 1U);
    for (int i = 0; i < 50; ++i) go(sleeper, c);
    bool equal = false;
    for (int i = 0; i < 10 && !equal; ++i) equal = blocks(dumped()) == num_goroutines();
    EXPECT_TRUE(equal);
    c.close();
  });
}

TEST(Conformance, SPN_08_no_helper_is_shown) {
  run_clean([] {
    timer t = after_func(1h, [] {});
    const std::string text = dumped();
    EXPECT_EQ(blocks(text), 1U) << text;
    EXPECT_TRUE(text.starts_with("goroutine 1 [running]:\n")) << text;
    t.stop();
  });
}

TEST(Conformance, DED_09_a_block_says_who_where_and_since_when) {
  run_clean([] {
    chan<int> c;
    go({.name = "sleepy"}, sleeper, c);
    ASSERT_TRUE(all_wait(1));
    const std::string text = dumped();
    EXPECT_TRUE(matches(text,
                        "\n\ngoroutine \\d+ \"sleepy\" \\[chan receive\\]:\n"
                        ".*sleeper\\(\\)\n\t/.*/dump_test\\.cc:\\d+ \\+0x[0-9a-f]+\n"
                        "(.*\n)*created by .* in goroutine 1\n"
                        "\t/.*/dump_test\\.cc:\\d+ \\+0x[0-9a-f]+\n"))
        << text;
    EXPECT_EQ(text.find("weft::rt::"), std::string::npos) << text;  // as in Go, not our own frames
    c.close();
  });
}

// The one who asks, then the others as they were made: on one P by one goroutine (more than a P
// takes from the table at once), and from all Ps.
TEST(Conformance, DED_09_the_oldest_first) {
  run_clean([] {
    chan<int> c;
    for (int i = 0; i < 100; ++i) go(sleeper, c);
    for (int i = 0; i < 8; ++i) {
      go([c] {
        for (int k = 0; k < 20; ++k) go(sleeper, c);
      });
    }
    ASSERT_TRUE(all_wait(260));
    const std::vector<std::uint64_t> ids = listed(dumped());
    EXPECT_EQ(ids.size(), 261U);
    EXPECT_EQ(ids.at(0), 1U);
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    std::uint64_t asker = 0;
    std::vector<std::uint64_t> others;
    async([&] {
      asker = goid();
      others = listed(dumped());
    }).wait();
    EXPECT_EQ(others.at(0), asker);
    EXPECT_EQ(others.at(1), 1U);
    EXPECT_TRUE(std::is_sorted(others.begin() + 1, others.end()));
    c.close();
  });
}

TEST(Conformance, DED_09_minutes_from_the_first_on) {
  run_clean([] {
    chan<int> c;
    go(sleeper, c);
    ASSERT_TRUE(all_wait(1));
    EXPECT_FALSE(matches(dumped(), "\\d+ minutes"));
    rt::sched.gs.for_each([](rt::G& g) {
      if (g.state() == rt::g_status::waiting) g.eh.since -= 3 * 60 + 10;
    });
    EXPECT_TRUE(matches(dumped(), "goroutine \\d+ \\[chan receive, 3 minutes\\]:\n"));
    c.close();
  });
}

[[gnu::noinline]] std::string at_depth(int n) {
  if (n == 0) return dumped();
  std::string s = at_depth(n - 1);
  s += ' ';  // not a tail call
  return s;
}

TEST(Conformance, DED_09_long_traces_keep_both_ends) {
  run_clean([] {
    std::string shortest = at_depth(20);
    EXPECT_EQ(shortest.find("elided"), std::string::npos);
    const std::string text = at_depth(300);
    std::smatch m;
    ASSERT_TRUE(
        std::regex_search(text, m, std::regex("\n\\.\\.\\.(\\d+) frames elided\\.\\.\\.\n")))
        << text;
    EXPECT_GT(std::stoi(m[1]), 190);
    EXPECT_LT(std::stoi(m[1]), 230);
    // The innermost and the outermost are there.
    EXPECT_TRUE(matches(text, "^goroutine 1 \\[running\\]:\n.*debug::dump")) << text.substr(0, 300);
    EXPECT_TRUE(matches(text, "run_clean|TestBody"));
  });
}

// n frames in all below dump's: those of at_depth, and the ones that main has anyway.
std::pair<int, int> shown_and_elided(const std::string& text) {
  const std::string own = text.substr(0, text.find("\n\n"));
  std::smatch m;
  const bool any =
      std::regex_search(own, m, std::regex("\n\\.\\.\\.(\\d+) frames elided\\.\\.\\.\n"));
  int shown = 0;
  for (std::size_t at = 0; (at = own.find("\n\t", at)) != std::string::npos; ++at) ++shown;
  return {shown, any ? std::stoi(m[1]) : 0};
}

TEST(Conformance, DED_09_a_hundred_frames_are_whole) {
  run_clean([] {
    const auto [base, none] = shown_and_elided(at_depth(0));
    ASSERT_EQ(none, 0);
    ASSERT_LT(base, 90);
    const auto [deeper, _] = shown_and_elided(at_depth(50));
    const int each = (deeper - base) / 50;  // inlined calls are frames, too
    ASSERT_GE(each, 1);
    for (const int over : {0, 1, 10}) {
      const int depth = (100 - base) / each + over;
      const int frames = base + depth * each;
      const auto [shown, elided] = shown_and_elided(at_depth(depth));
      EXPECT_EQ(shown, std::min(frames, 100)) << depth;
      EXPECT_EQ(elided, std::max(frames - 100, 0)) << depth;
    }
  });
}

// As Go calls them.
TEST(Conformance, DED_09_what_a_select_waits_for) {
  goroutines_are_left_behind = true;
  weft::run([] {
    const chan<int> none(nullptr), never;
    go({.name = "nothing"}, [] { weft::select(); });
    go({.name = "one receive"}, [=] { weft::select(weft::recv(none)); });
    go({.name = "one send"}, [=] { weft::select(weft::send(none, 1)); });
    go({.name = "two"}, [=] { weft::select(weft::recv(none), weft::send(none, 1)); });
    go({.name = "live"}, [=] { weft::select(weft::recv(never), weft::send(never, 1)); });
    ASSERT_TRUE(all_wait(5));
    const std::string text = dumped();
    const std::pair<const char*, const char*> reasons[] = {
        {"nothing", "select (no cases)"},
        {"one receive", "chan receive (nil chan)"},
        {"one send", "chan send (nil chan)"},
        {"two", "select"},
        {"live", "select"}};
    for (const auto& [name, reason] : reasons) {
      const std::string head = '"' + std::string(name) + "\" [" + reason + "]:\n";
      EXPECT_NE(text.find(head), std::string::npos) << head << text;
    }
  });
}

[[gnu::noinline]] void reads(int fd) {
  char c;
  const ssize_t n = ::read(fd, &c, 1);
  EXPECT_EQ(n, 1);
}

// Nobody sends a signal to one that sleeps in a call; the kernel says where it stands.
TEST(Conformance, DED_09_those_in_a_call_have_a_stack) {
  if (sanitized) GTEST_SKIP() << "the frames of their read(2) need a register that nobody tells";
  run_clean([] {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    scope s;
    s.go([&] { reads(ends[0]); });
    s.go([&] { blocking([&] { reads(ends[0]); }); });
    const auto in_read = [] {
      const std::string text = dumped();
      int n = 0;
      for (std::size_t at = 0; (at = text.find("::reads()\n", at)) != std::string::npos; ++at) ++n;
      return n;
    };
    EXPECT_TRUE(eventually([&] { return in_read() == 2; })) << dumped();
    EXPECT_EQ(dumped().find("stack unavailable"), std::string::npos);
    ASSERT_EQ(::write(ends[1], "xx", 2), 2);
    s.wait();
    ::close(ends[0]);
    ::close(ends[1]);
  });
}

TEST(Conformance, DED_09_not_begun) {
  run_clean(with_procs(1), [] {
    chan<int> c;
    go(sleeper, c);  // has not had a turn
    const std::string text = dumped();
    EXPECT_TRUE(matches(text, "\n\ngoroutine \\d+ \\[runnable\\]:\n")) << text;
    c.close();
  });
}

TEST(Conformance, DED_09_from_a_plain_thread) {
  run_clean([] {
    chan<int> c;
    chan<std::string> text;
    go(sleeper, c);
    ASSERT_TRUE(all_wait(1));
    std::thread t([=] { text.send(dumped()); });
    const std::string s = *text.recv();
    EXPECT_EQ(blocks(s), 2U) << s;
    EXPECT_TRUE(matches(s, "goroutine 1 \\[(chan receive|runnable|running)\\]:\n")) << s;
    t.join();
    c.close();
  });
}

struct null_buffer : std::streambuf {
  std::size_t bytes = 0;
  std::streamsize xsputn(const char*, std::streamsize n) override {
    bytes += static_cast<std::size_t>(n);
    return n;
  }
  int overflow(int ch) override {
    ++bytes;
    return ch;
  }
};

// Of all threads: the goroutine may change its own.
std::chrono::nanoseconds cpu_time() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

TEST(Conformance, DED_09_a_hundred_thousand) {
  static constexpr int n = under_tsan ? 500 : full_or(100'000, 10'000);
  run_clean([] {
    chan<int> c;
    for (int i = 0; i < n; ++i) go(sleeper, c);
    ASSERT_TRUE(all_wait(static_cast<std::size_t>(n)));
    // Both are measured by what only the machine can add to: the dump by CPU time, the stops, which
    // end by the clock on the wall, by the best of some dumps.
    std::chrono::nanoseconds stopped = 1h;
    for (int i = 0; i < 5 && stopped > 50ms; ++i) {
      null_buffer buffer;
      std::ostream out(&buffer);
      const auto before = debug::runtime_stats();
      const auto began = cpu_time();
      debug::dump(out);
      const auto took = cpu_time() - began;
      const auto after = debug::runtime_stats();
      const auto stops = after.stops - before.stops;
      stopped = std::min(stopped,
                         std::chrono::nanoseconds((after.stopped_ns - before.stopped_ns) / stops));
      EXPECT_GT(buffer.bytes, static_cast<std::size_t>(n) * 60);
      using ms = std::chrono::duration<double, std::milli>;
      std::printf("dump of %d: %.1f ms, world stopped %.1f ms at a time\n", n, ms(took).count(),
                  ms(stopped).count());
      if (sanitized) break;
      EXPECT_LE(took, 2s);
    }
    if (!sanitized) {
      EXPECT_LE(stopped, 50ms);
    }
    c.close();
  });
}

}  // namespace
}  // namespace weft::test
