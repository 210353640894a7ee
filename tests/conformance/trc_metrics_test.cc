// SPDX-License-Identifier: Apache-2.0
// TRC-08, TRC-09, TRC-10: what runtime_stats counts; the same for Prometheus; and debug::serve.
#include <cstdio>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <unistd.h>

#include "support/runtime.h"
#include "support/traces.h"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

std::uint64_t count(const debug::histogram& h) {
  return std::accumulate(std::begin(h.count), std::end(h.count), std::uint64_t{0});
}

TEST(Conformance, TRC_08_metrics_match_a_load) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  run_clean(with_procs(14), [&] {
    const debug::stats before = debug::runtime_stats();
    chan<void> never;
    rt::atomic<bool> over{false};
    scope s;
    for (int i = 0; i < 1000; ++i) s.go([=] { never.recv(); });
    for (int i = 0; i < 10; ++i)
      s.go([&] {
        char c = 0;
        blocking([&] { return ::read(pipe[0], &c, 1); });
      });
    for (int i = 0; i < 10; ++i)
      s.go([&] {
        while (!over) rt::cpu_relax();
      });
    EXPECT_TRUE(eventually([] {
      const debug::stats st = debug::runtime_stats();
      return st.waiting == 1000 && st.syscall == 10 && st.running >= 11;
    })) << debug::metrics();
    const debug::stats now = debug::runtime_stats();
    EXPECT_EQ(now.created - before.created, 1020U);
    EXPECT_EQ(now.goroutines, 1021U);
    EXPECT_GE(now.threads, 14U);
    EXPECT_GE(now.parks, before.parks + 1000);
    over = true;
    never.close();
    EXPECT_EQ(::write(pipe[1], "0123456789", 10), 10);
  });
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(Conformance, TRC_08_latencies_are_counted) {
  run_clean([] {
    const debug::stats before = debug::runtime_stats();
    chan<int> there, back;
    scope s;
    s.go([=] {
      for (int v : there) back.send(v);
    });
    for (int i = 0; i < 6400; ++i) {
      there.send(i);
      (void)back.recv();
    }
    there.close();
    s.wait();
    const debug::stats now = debug::runtime_stats();
    // One in 64 is timed and stands for 64.
    EXPECT_GT(count(now.latency) - count(before.latency), 6400U);
    EXPECT_GT(now.latency.sum_ns, before.latency.sum_ns);
  });
}

// Not in Go is who is inside blocking(), and nobody else: no plain thread that has been in weft and
// is elsewhere now, and none that waits inside it.
TEST(Conformance, TRC_09_who_is_not_in_go) {
  constexpr std::uint64_t n = 10;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  run_clean(with_procs(2), [&] {
    const auto not_in_go = [] { return debug::runtime_stats().syscall; };
    chan<void> called, over;
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < n; ++i) {
      threads.emplace_back([&] {  // comes in, and goes back to code that weft knows nothing of
        called.send();
        char c = 0;
        EXPECT_EQ(::read(pipe[0], &c, 1), 1);
      });
    }
    for (std::uint64_t i = 0; i < n; ++i) called.recv();
    EXPECT_EQ(not_in_go(), 0U);
    scope s;
    for (std::uint64_t i = 0; i < n; ++i) {
      s.go([&] {
        char c = 0;
        blocking([&] { return ::read(pipe[0], &c, 1); });
      });
    }
    EXPECT_TRUE(eventually([&] { return not_in_go() == n; })) << not_in_go();
    std::ostringstream text;
    debug::dump(text);  // stops the world
    EXPECT_EQ(not_in_go(), n);
    for (std::uint64_t i = 0; i < n; ++i) {
      threads.emplace_back([&] {
        called.send();
        over.recv();  // waits inside
      });
    }
    for (std::uint64_t i = 0; i < n; ++i) called.recv();
    EXPECT_EQ(not_in_go(), n);
    EXPECT_NE(debug::metrics().find("\ngo_sched_goroutines_not_in_go_goroutines 10\n"),
              std::string::npos);
    over.close();
    const std::string bytes(2 * n, 'x');
    EXPECT_EQ(::write(pipe[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    s.wait();
    EXPECT_EQ(not_in_go(), 0U);
    blocking([&] {
      for (std::thread& t : threads) t.join();
    });
  });
  ::close(pipe[0]);
  ::close(pipe[1]);
}

template <class First, class Second>
void expect_wait_counted(First first, Second second) {
  run_clean(at_least_procs(2), [&] {
    const std::uint64_t before = debug::runtime_stats().mutex_wait_ns;
    scope s;
    {
      first.lock();
      s.go([&] {
        second.lock();
        second.unlock();
      });
      EXPECT_TRUE(eventually([] { return debug::runtime_stats().waiting == 1; }));
      sleep_for(100ms);
      first.unlock();
    }
    s.wait();
    EXPECT_GE(debug::runtime_stats().mutex_wait_ns - before, 100'000'000U);
  });
}

TEST(Conformance, TRC_10_time_waited_for_mutexes) {
  mutex m;
  expect_wait_counted(std::unique_lock(m, std::defer_lock), std::unique_lock(m, std::defer_lock));
  shared_mutex rw;
  const auto writer = [&] { return std::unique_lock(rw, std::defer_lock); };
  const auto reader = [&] { return std::shared_lock(rw, std::defer_lock); };
  expect_wait_counted(writer(), writer());
  expect_wait_counted(writer(), reader());
  expect_wait_counted(reader(), writer());
}

TEST(Conformance, TRC_10_pauses_are_counted) {
  trace_file f;
  run_clean(with_procs(2), [&] {
    std::uint64_t last = count(debug::runtime_stats().pauses);
    const auto expect_more = [&](const char* what) {
      const debug::stats now = debug::runtime_stats();
      EXPECT_GT(count(now.pauses), last) << what;
      EXPECT_EQ(count(now.pauses), count(now.stopping)) << what;
      last = count(now.pauses);
    };
    weft::set_procs(3);
    expect_more("set_procs");
    std::ostringstream text;
    debug::dump(text);
    expect_more("dump");
    debug::trace::start(f.path());
    expect_more("trace::start");
    debug::trace::stop();
    expect_more("trace::stop");
  });
}

// -- serve

std::string ask(const std::string& addr, std::string_view request) {
  net::conn c = net::dial("tcp", addr);
  c.write_all(request);
  std::string all;
  char some[4096];
  for (std::size_t n; (n = c.read_some(std::span<char>(some))) != 0;) all.append(some, n);
  return all;
}
std::string get(const std::string& addr, const std::string& target) {
  return ask(addr, "GET " + target + " HTTP/1.1\r\nHost: weft\r\n\r\n");
}

TEST(Serve, AnswersWhatItIsAsked) {
  trace_file f;
  run_clean(at_least_procs(2), [&] {
    static_assert(std::is_void_v<decltype(debug::serve("127.0.0.1:0"))>);
    debug::serve("127.0.0.1:0");
    ASSERT_EQ(debug::served().size(), 1U);
    const std::string addr = debug::served()[0];
    const std::string figures = get(addr, "/metrics");
    EXPECT_TRUE(figures.starts_with("HTTP/1.1 200 OK\r\n")) << figures;
    for (const char* name :
         {"\ngo_goroutines 1\n", "\ngo_sched_gomaxprocs_threads ",
          "\ngo_sched_latencies_seconds_bucket{le=\"0.000001024\"} ",
          "\ngo_sched_pauses_total_other_seconds_count ",
          "\ngo_sync_mutex_wait_total_seconds_total ", "\nweft_sched_steals_total "})
      EXPECT_NE(figures.find(name), std::string::npos) << name << figures;
    const std::string all = get(addr, "/goroutines");
    EXPECT_NE(all.find("goroutine 1 ["), std::string::npos) << all;
    EXPECT_NE(get(addr, "/").find("<title>weft</title>"), std::string::npos);
    const std::string recorded = get(addr, "/trace?seconds=0.05");
    ASSERT_TRUE(recorded.starts_with("HTTP/1.1 200 OK\r\n")) << recorded.substr(0, 200);
    const std::string body = recorded.substr(recorded.find("\r\n\r\n") + 4);
    std::FILE* to = std::fopen(f.path().c_str(), "w");
    std::fwrite(body.data(), 1, body.size(), to);
    std::fclose(to);

    EXPECT_TRUE(get(addr, "/nothing").starts_with("HTTP/1.1 404 "));
    EXPECT_TRUE(get(addr, "/trace?seconds=1h").starts_with("HTTP/1.1 400 "));
    EXPECT_TRUE(ask(addr, "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    EXPECT_TRUE(ask(addr, "hello\r\n\r\n").starts_with("HTTP/1.1 400 "));
    EXPECT_TRUE(ask(addr, "GET /" + std::string(9000, 'x')).starts_with("HTTP/1.1 431 "));
    EXPECT_THROW(debug::serve(addr), std::system_error);  // taken
  });
  (void)f.summary();
}

}  // namespace
}  // namespace weft::test
