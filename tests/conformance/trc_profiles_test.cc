// SPDX-License-Identifier: Apache-2.0
// TRC-11, TRC-12: the profile of goroutines, and that of blocking.
#include <cctype>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "debug/block_profile.h"
#include "debug/profile_text.h"
#include "support/runtime.h"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

// One stack of a profile: the figures before the '@', and the lines behind it.
struct entry {
  std::vector<std::uint64_t> figures;
  std::string lines;
};

std::vector<entry> entries_of(const std::string& text) {
  std::vector<entry> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::size_t at = line.find('@');
    if (!line.empty() && std::isdigit(static_cast<unsigned char>(line[0])) != 0 &&
        at != std::string::npos) {
      all.emplace_back();
      std::istringstream figures(line.substr(0, at));
      for (std::uint64_t v; figures >> v;) all.back().figures.push_back(v);
    } else if (!all.empty()) {
      all.back().lines += line + "\n";
    }
  }
  return all;
}

std::string goroutine_profile() {
  std::ostringstream out;
  debug::goroutine_profile(out);
  return out.str();
}

// -- TRC-11

// Each waits at a place of its own, and the compiler cannot make one of two.
template <int Place>
[[gnu::noinline]] void wait_at(const chan<void>& c) {
  c.recv();
  asm volatile("" ::"i"(Place));
}
template <int Place>
void start(int n, const chan<void>& c, std::string_view name = {}) {
  for (int i = 0; i < n; ++i) go({.name = name}, [c] { wait_at<Place>(c); });
}

TEST(Conformance, TRC_11_profile_groups_equal_stacks) {
  run_clean(with_procs(2), [] {
    chan<void> c;
    start<1>(10, c);
    start<2>(50, c);
    start<3>(40, c);
    start<3>(9, c, "nine");  // the same stack under another name
    start<4>(36, c, "left");
    start<4>(44, c, "right");
    ASSERT_TRUE(eventually([] { return debug::runtime_stats().waiting == 189; }));
    const std::string text = goroutine_profile();
    EXPECT_TRUE(text.starts_with("goroutine profile: total 190\n")) << text;
    std::vector<std::uint64_t> counts;
    for (const entry& e : entries_of(text)) {
      ASSERT_EQ(e.figures.size(), 1U) << text;
      counts.push_back(e.figures[0]);
      EXPECT_EQ(e.lines.find("# labels: ") != std::string::npos,
                e.figures[0] == 9 || e.figures[0] == 36 || e.figures[0] == 44)
          << text;
    }
    EXPECT_EQ(counts, (std::vector<std::uint64_t>{50, 44, 40, 36, 10, 9, 1})) << text;
    EXPECT_NE(text.find("# labels: {\"name\":\"nine\"}\n"), std::string::npos) << text;
    EXPECT_NE(text.find("wait_at<2>"), std::string::npos) << text;
    c.close();
    ASSERT_TRUE(eventually([] { return num_goroutines() == 1; }));
  });
}

// Each starts the next one, under a name that says which it is, while profiles are taken: if one is
// in the profile so is everybody before it.
TEST(Conformance, TRC_11_whoever_is_seen_so_are_all_older_ones) {
  run_clean(with_procs(4), [] {
    const int n = scaled(2000);
    chan<void> never;
    rt::atomic<int> born{0};
    scope s;
    for (int k = 0; k < 4; ++k) {
      s.go([&, k] {
        for (int i = 0; i < n; ++i) {
          const std::string name = std::to_string(k) + "/" + std::to_string(i);
          go({.name = name}, [never] { never.recv(); });
          born.fetch_add(1);
        }
      });
    }
    for (bool all = false; !all;) {
      all = born == 4 * n;
      rt::arena memory;
      rt::arena_list<rt::g_record> gs;
      rt::take_goroutines(memory, gs);
      std::map<int, std::set<int>> seen;
      gs.for_each([&](const rt::g_record& g) {
        if (g.name == nullptr) return;
        char* end = nullptr;
        const long k = std::strtol(g.name, &end, 10);
        seen[static_cast<int>(k)].insert(static_cast<int>(std::strtol(end + 1, nullptr, 10)));
      });
      for (const auto& [k, of_k] : seen) {
        EXPECT_EQ(*of_k.rbegin() + 1, static_cast<int>(of_k.size())) << k;
      }
    }
    s.wait();
    never.close();
    ASSERT_TRUE(eventually([] { return num_goroutines() == 1; }));
  });
}

TEST(Conformance, TRC_11_profiles_beside_fast_system_calls) {
  run_clean(with_procs(full_or(100, 16)), [] {
    rt::atomic<bool> over{false};
    scope s;
    for (int i = 0; i < 8; ++i) {
      s.go([&] {
        while (!over) {
          blocking([] { return ::syscall(SYS_getppid); });
          yield();
        }
      });
    }
    const int n = scaled(static_cast<int>(2000 * effort()));
    for (int i = 0; i < n; ++i) {
      rt::arena memory;
      rt::arena_list<rt::g_record> all;
      rt::take_goroutines(memory, all);
      ASSERT_EQ(all.size(), 9U);
    }
    EXPECT_TRUE(goroutine_profile().starts_with("goroutine profile: total 9\n"));
    over = true;
  });
}

// -- TRC-12

class block_profile {
 public:
  explicit block_profile(std::chrono::nanoseconds rate) { debug::set_block_profile_rate(rate); }
  ~block_profile() { debug::set_block_profile_rate(0ns); }
  std::string text() const {
    std::ostringstream out;
    debug::block_profile(out);
    return out.str();
  }
};

constexpr auto pause = 5ms;

// What the other one does when the first waits: seen to wait, and then some.
template <class F>
void later(scope& s, F f) {
  s.go([f = std::move(f)] {
    EXPECT_TRUE(eventually([] { return debug::runtime_stats().waiting == 1; }));
    sleep_for(pause);
    f();
  });
}

[[gnu::noinline]] void block_recv(scope& s) {
  chan<void> c;
  later(s, [c] { c.send(); });
  c.recv();
}
[[gnu::noinline]] void block_send(scope& s) {
  chan<void> c;
  later(s, [c] { c.recv(); });
  c.send();
}
[[gnu::noinline]] void block_close(scope& s) {
  chan<void> c;
  later(s, [c] { c.close(); });
  c.recv();
}
[[gnu::noinline]] void block_select_recv(scope& s) {
  chan<void> c, d;
  later(s, [c] { c.send(); });
  weft::select(weft::recv(c), weft::recv(d));
}
[[gnu::noinline]] void block_select_send(scope& s) {
  chan<void> c, d;
  later(s, [c] { c.recv(); });
  weft::select(weft::send(c), weft::recv(d));
}
[[gnu::noinline]] void block_mutex(scope& s) {
  mutex m;
  m.lock();
  later(s, [&m] { m.unlock(); });
  m.lock();
  m.unlock();
  s.wait();
}
[[gnu::noinline]] void block_cond(scope& s) {
  mutex m;
  condition_variable cv;
  std::unique_lock hold(m);
  later(s, [&] {
    const std::lock_guard too(m);
    cv.notify_one();
  });
  cv.wait(hold);
  hold.unlock();
  s.wait();
}

TEST(Conformance, TRC_12_blocking_is_recorded_with_its_stack) {
  const struct {
    const char* name;
    void (*block)(scope&);
  } ways[] = {{"block_recv", block_recv},
              {"block_send", block_send},
              {"block_close", block_close},
              {"block_select_recv", block_select_recv},
              {"block_select_send", block_select_send},
              {"block_mutex", block_mutex},
              {"block_cond", block_cond}};
  run_clean(with_procs(2), [&] {
    const block_profile on(1ns);
    for (const auto& w : ways) {
      scope s;
      w.block(s);
    }
    const std::string text = on.text();
    EXPECT_TRUE(text.starts_with("--- contention:\ncycles/second=1000000000\n")) << text;
    for (const auto& w : ways) {
      std::uint64_t longest = 0;
      for (const entry& e : entries_of(text)) {
        if (e.lines.find(w.name) == std::string::npos) continue;
        ASSERT_EQ(e.figures.size(), 2U) << text;
        EXPECT_GE(e.figures[1], 1U) << text;
        longest = std::max(longest, e.figures[0]);
      }
      EXPECT_GE(longest, 5'000'000U) << w.name << "\n" << text;
    }
  });
}

TEST(Conformance, TRC_12_off_records_nothing) {
  run_clean(with_procs(2), [] {
    const rt::blocked_total before = rt::blocked_so_far();
    {
      scope s;
      block_recv(s);
    }
    EXPECT_EQ(rt::blocked_so_far().times, before.times);
  });
}

TEST(Conformance, TRC_12_sampling_is_unbiased) {
  constexpr std::uint64_t rate = 10'000;
  const block_profile on{std::chrono::nanoseconds(rate)};
  const auto blocked = [](int times, std::uint64_t ns, std::uint64_t where) {
    const rt::blocked_total before = rt::blocked_so_far();
    for (int i = 0; i < times; ++i) rt::count_blocked(&where, 1, ns);
    const rt::blocked_total now = rt::blocked_so_far();
    return rt::blocked_total{now.times - before.times, now.ns - before.ns};
  };
  const rt::blocked_total small = blocked(100'000, rate / 10, 1), large = blocked(10'000, rate, 2);
  EXPECT_EQ(large.ns, 10'000 * rate);
  EXPECT_EQ(large.times, 10'000U);
  EXPECT_NEAR(static_cast<double>(small.ns), static_cast<double>(large.ns),
              0.2 * static_cast<double>(large.ns));
  EXPECT_NEAR(static_cast<double>(small.times), 100'000.0, 20'000.0);
}

}  // namespace
}  // namespace weft::test
