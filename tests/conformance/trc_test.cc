// SPDX-License-Identifier: Apache-2.0
// TRC: traces. Every trace that a test makes is checked by tools/check_trace.py.
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/current.h"
#include "sched/procs.h"
#include "sched/tracing.h"
#include "support/chaos.h"
#include "support/runtime.h"
#include "support/traces.h"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

namespace trace = debug::trace;

struct pipe_ends {
  int fd[2] = {-1, -1};
  pipe_ends() {
    if (::pipe(fd) != 0) std::abort();
  }
  ~pipe_ends() {
    ::close(fd[0]);
    ::close(fd[1]);
  }
  void read_one() const {
    char c = 0;
    blocking([&] { return ::read(fd[0], &c, 1); });
  }
  void write_one() const { EXPECT_EQ(::write(fd[1], "x", 1), 1); }
};

[[gnu::noinline]] void compute(std::chrono::nanoseconds d) {
  const auto until = steady::now() + d;
  while (steady::now() < until) {
  }
}

// The poller wakes somebody for certain: nothing is written before the other one waits for it.
void talk_over_tcp() {
  net::listener l = net::listen("tcp", "127.0.0.1:0");
  rt::atomic<rt::G*> reader{nullptr};
  scope s;
  s.go([&] {
    net::conn c = l.accept();
    reader = rt::current_g();
    std::byte b[4];
    c.read_full(b);
    c.write_all("pong");
  });
  net::conn c = net::dial("tcp", l.addr().to_string());
  EXPECT_TRUE(eventually([&] {
    const rt::G* g = reader;
    return g != nullptr && g->state() == rt::g_status::waiting;
  }));
  c.write_all("ping");
  std::byte b[4];
  c.read_full(b);
  s.wait();
}

// Something of everything that the scheduler does.
void mix(std::uint64_t rounds) {
  scope s;
  chan<int> c, d(3);
  mutex mu;
  s.go([=] {
    for (std::uint64_t i = 0; i < rounds; ++i) c.send(1);
    c.close();
  });
  s.go([=] {
    for (int v : c) d.send(v);
    d.close();
  });
  s.go([=] {
    while (d.recv()) yield();
  });
  for (int k = 0; k < 3; ++k)
    s.go([&mu, rounds] {
      for (std::uint64_t i = 0; i < rounds; ++i) {
        const trace::region r("locked");
        const std::lock_guard hold(mu);
        if (i % 16 == 0) yield();
      }
    });
  s.go([rounds] {
    for (std::uint64_t i = 0; i < rounds / 50; ++i) {
      scope children;
      for (int k = 0; k < 10; ++k) children.go([] { sleep_for(20us); });
      children.wait();
    }
  });
  s.go([] {
    for (int i = 0; i < 3; ++i) blocking([] { ::usleep(2000); });
    ::usleep(2000);  // told nobody
    const os_thread_guard own;
    yield();
    sleep_for(100us);
  });
  s.go([] { compute(30ms); });
  s.go(talk_over_tcp);
  chan<int> from_outside;
  std::thread outside([from_outside] {
    for (int i = 0; i < 20; ++i) {
      from_outside.send(i);
      go([] { trace::log("from outside"); });
    }
    from_outside.close();
  });
  for (int v : from_outside) (void)v;
  outside.join();
  s.wait();
  trace::log("done");
}

TEST(Conformance, TRC_01_start_then_stop) {
  trace_file f, other;
  run_clean([&] {
    EXPECT_FALSE(trace::enabled());
    trace::stop();  // nothing to stop
    trace::start(f.path());
    EXPECT_TRUE(trace::enabled());
    EXPECT_THROW(trace::start(other.path()), std::logic_error);
    EXPECT_THROW(trace::record(), std::logic_error);
    trace::log("hello");
    trace::stop();
    EXPECT_FALSE(trace::enabled());
    const long size = f.size();
    EXPECT_GT(size, 0);
    chan<int> c(1);
    const auto until = steady::now() + 100ms;
    while (steady::now() < until) {
      c.send(1);
      (void)c.recv();
      yield();
    }
    EXPECT_EQ(f.size(), size);
    trace::stop();
    EXPECT_EQ(f.size(), size);
  });
  EXPECT_EQ(other.size(), 0);
  EXPECT_TRUE(has_line(f.events(), {"track=G1 ", "log", "text='hello'"}));
}

TEST(Conformance, TRC_01_a_file_that_cannot_be_made) {
  run_clean([] {
    EXPECT_THROW(trace::start("/nonexistent/weft.trace"), std::system_error);
    EXPECT_FALSE(trace::enabled());
  });
}

TEST(Conformance, TRC_01_cycles_under_a_storm_of_signals) {
  struct sigaction before {
  }, now{};
  now.sa_handler = [](int) {};
  now.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &now, &before);
  trace_file f;
  const auto cycles = by_effort(100, 25);
  rt::atomic<bool> over{false};
  std::thread storm([&] {
    while (!over) {
      ::kill(::getpid(), SIGUSR1);
      std::this_thread::sleep_for(50us);
    }
  });
  config c = at_least_procs(2);
  c.quantum = 500us;
  run_clean(c, [&] {
    scope s;
    s.go([&] {
      while (!over) compute(1ms);
    });
    s.go([&] {
      while (!over) yield();
    });
    for (std::uint64_t i = 0; i < cycles; ++i) {
      trace::start(f.path());
      sleep_for(200us);
      trace::stop();
    }
    over = true;
  });
  storm.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  (void)f.events();
}

TEST(Conformance, TRC_02_the_checker_finds_what_is_wrong) {
  const outcome o =
      run_process({"python3", WEFT_CHECK_TRACE, "--self-test"}, std::chrono::seconds(60));
  EXPECT_EQ(o.status, 0) << o;
}

TEST(Conformance, TRC_02_a_mix_of_everything_is_valid) {
  for (const int procs : {1, 2, 4}) {
    trace_file f;
    config c = with_procs(procs);
    c.quantum = 1ms;
    run_clean(c, [&] {
      trace::start(f.path());
      mix(by_effort(400, 100));
      trace::stop();
    });
    const std::string said = f.summary();
    for (const char* what : {"ready", "go", "syscall begins", "timers", "net", "hand-off",
                             "locked begins", "log", "idle begins"})
      EXPECT_NE(said.find(std::string(" ") + what + "\n"), std::string::npos)
          << what << " is missing at " << procs << " Ps\n"
          << said;
    EXPECT_NE(said.find(" 0 records lost"), std::string::npos) << said;
  }
}

// Members wait, are woken from outside, lose their P in calls and by the end of the slice.
TEST(Conformance, TRC_02_bubbles_are_valid) {
  for (const int procs : {1, 3}) {
    trace_file f;
    config c = with_procs(procs);
    c.quantum = 1ms;
    run_clean(c, [&] {
      trace::start(f.path());
      const chan<int> outside;
      wait_group feeders;
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        feeders.go([&] {
          for (int i = 0; i < 4; ++i) outside.send(i);
        });
        testing::bubble(seed, [&] {
          mutex m;
          wait_group wg;
          for (int i = 0; i < 4; ++i) {
            wg.go([&, i] {
              outside.recv();
              sleep_for(1s);
              yield();
              const std::lock_guard hold(m);
              if (i == 0) blocking([] { std::this_thread::sleep_for(2ms); });
              if (i == 1) compute(3ms);
              if (i == 2) go([] { sleep_for(1h); });
              yield();
            });
          }
          testing::wait();
          wg.wait();
          after_func(1s, [] { trace::log("late"); });
          sleep_for(2h);
        });
      }
      feeders.wait();
      trace::stop();
    });
    const std::string said = f.events();
    EXPECT_TRUE(has_line(said, {"00000001"})) << said;  // f, under its bubble's number
  }
}

TEST(Conformance, TRC_02_a_trace_outlives_its_run) {
  trace_file f;
  trace::start(f.path());
  for (int i = 0; i < 3; ++i) {
    run_clean([] { mix(50); });
    weft::run([] {
      go([] { compute(1h); });
      yield();
    });  // left behind
  }
  trace::stop();
  EXPECT_NE(f.summary().find("6 run ends\n"), std::string::npos);
}

// The file is a pipe that nobody reads for a while.
TEST(Conformance, TRC_02_records_that_found_no_room) {
  trace_file f;
  const std::string fifo = f.path() + ".fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int from = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  run_clean(with_procs(2), [&] {
    trace::start(fifo, {.buffer = 0});  // the least there is
    rt::atomic<bool> over{false};
    scope s;
    for (int k = 0; k < 6; ++k)
      s.go([&] {
        while (!over) yield();
      });
    EXPECT_TRUE(eventually([] { return rt::traces.gap.load(); }));
    std::thread reader([&] {
      const int to = ::open(f.path().c_str(), O_WRONLY | O_TRUNC);
      ::fcntl(from, F_SETFL, 0);
      std::vector<char> some(1 << 16);
      for (ssize_t n; (n = ::read(from, some.data(), some.size())) > 0;)
        EXPECT_EQ(::write(to, some.data(), static_cast<std::size_t>(n)), n);
      ::close(to);
    });
    EXPECT_TRUE(eventually([] { return !rt::traces.gap.load(); }));  // a new picture
    over = true;
    s.wait();
    trace::stop();
    reader.join();
  });
  ::close(from);
  ::unlink(fifo.c_str());
  const std::string said = f.summary();
  EXPECT_EQ(said.find(" 0 records lost"), std::string::npos) << said;
}

// -- TRC-03. Each of these has a frame of its own.

#define WEFT_TEST_FRAME(name, body) \
  [[gnu::noinline]] void name() {   \
    body;                           \
    asm volatile("" ::: "memory");  \
  }
chan<int> trc_sent, trc_received, trc_selected;
mutex trc_mutex;
condition_variable trc_cond;
wait_group trc_group;
pipe_ends* trc_pipe = nullptr;
net::listener* trc_listener = nullptr;
WEFT_TEST_FRAME(trc_yields, yield())
WEFT_TEST_FRAME(trc_spawns, go([] {}))
WEFT_TEST_FRAME(trc_sends, trc_sent.send(1))
WEFT_TEST_FRAME(trc_receives, (void)trc_received.recv())
WEFT_TEST_FRAME(trc_selects, weft::select(recv(trc_selected), recv(trc_selected)))
WEFT_TEST_FRAME(trc_locks, const std::lock_guard hold(trc_mutex))
WEFT_TEST_FRAME(trc_waits_for_group, trc_group.wait())
rt::atomic<bool> trc_notified{false};
WEFT_TEST_FRAME(trc_waits_for_cond, std::unique_lock hold(trc_mutex); trc_cond.wait(hold);
                trc_notified = true)
WEFT_TEST_FRAME(trc_sleeps, sleep_for(1ms))
WEFT_TEST_FRAME(trc_accepts, (void)trc_listener->accept())
WEFT_TEST_FRAME(trc_reads, trc_pipe->read_one())
WEFT_TEST_FRAME(trc_resizes, weft::set_procs(3))
WEFT_TEST_FRAME(trc_wakes, trc_received.send(1))
WEFT_TEST_FRAME(trc_blocks_for_ever, weft::select())

TEST(Conformance, TRC_03_each_block_carries_the_users_stack) {
  const order_matters here("a yield finds somebody to give way to");
  if (under_emulator) GTEST_SKIP() << "stacks are walked with the loader's help";
  trace_file f;
  pipe_ends pipe;
  trc_pipe = &pipe;
  trc_notified = false;
  weft::run(with_procs(2), [&] {  // one blocks for ever
    net::listener l = net::listen("tcp", "127.0.0.1:0");
    trc_listener = &l;
    trace::start(f.path(), {.stacks = true});
    go(trc_blocks_for_ever);
    scope s;
    trc_group.add(1);
    trc_mutex.lock();
    for (void (*frame)() : {trc_spawns, trc_sends, trc_receives, trc_selects, trc_locks,
                            trc_waits_for_group, trc_accepts, trc_reads})
      s.go(frame);
    const std::size_t blocked = 7;  // and the select, less the one that starts another, the read
    EXPECT_TRUE(eventually([&] {
      const debug::stats st = debug::runtime_stats();
      return st.waiting >= blocked && st.syscall == 1;
    }));
    s.go(trc_sleeps);
    // Whoever steals one of them has enough to do, so that the others stay here.
    rt::atomic<bool> yielded{false};
    for (int k = 0; k < 4; ++k)
      s.go([&] {
        while (!yielded) yield();
      });
    trc_yields();
    yielded = true;
    trc_mutex.unlock();
    trc_wakes();
    trc_selected.send(1);
    (void)trc_sent.recv();
    trc_group.done();
    pipe.write_one();
    { net::conn c = net::dial("tcp", l.addr().to_string()); }
    s.go(trc_waits_for_cond);
    EXPECT_TRUE(eventually([] {
      trc_cond.notify_all();
      return trc_notified.load();
    }));
    s.wait();
    // The one who blocks for ever has come to it by now, but nobody has waited for that.
    EXPECT_TRUE(eventually([] { return debug::runtime_stats().waiting >= 1; }));
    trc_resizes();
    trace::stop();
  });
  const std::string said = f.events();
  const std::pair<const char*, const char*> wanted[] = {
      {"to='runnable'", "trc_yields"},
      {" go ", "trc_spawns"},
      {"why='chan send'", "trc_sends"},
      {"why='chan receive'", "trc_receives"},
      {"why='select'", "trc_selects"},
      {"why='select (no cases)'", "trc_blocks_for_ever"},
      {"why='sync.Mutex.Lock'", "trc_locks"},
      {"why='sync.WaitGroup.Wait'", "trc_waits_for_group"},
      {"why='sync.Cond.Wait'", "trc_waits_for_cond"},
      {"why='sleep'", "trc_sleeps"},
      {"why='IO wait'", "trc_accepts"},
      {"to='syscall'", "trc_reads"},
      {" procs ", "trc_resizes"},
      {" ready ", "trc_wakes"}};
  for (const auto& [what, where] : wanted)
    EXPECT_TRUE(has_line(said, {what, where})) << what << " in " << where << "\n" << said;
}

TEST(Conformance, TRC_05_those_who_waited_before_it_began) {
  trace_file f;
  pipe_ends pipe;
  run_clean(with_procs(2), [&] {
    chan<int> c;
    scope s;
    s.go([=] { (void)c.recv(); });
    s.go([&] { pipe.read_one(); });
    EXPECT_TRUE(eventually([] {
      const debug::stats st = debug::runtime_stats();
      return st.waiting == 1 && st.syscall == 1;
    }));
    trace::start(f.path());
    c.send(1);
    pipe.write_one();
    s.wait();
    trace::stop();
  });
  const std::string said = f.events();
  EXPECT_TRUE(has_line(said, {"status", "to='waiting'", "why='chan receive'"})) << said;
  EXPECT_TRUE(has_line(said, {"status", "to='syscall'"})) << said;
  EXPECT_EQ(said, f.events());
}

// One after another, by a plain thread, until it goes. A machine that is busy lets it take ten
// times as many in the same test, and all of them are checked: so there is an end.
class pictures {
 public:
  ~pictures() {
    over_ = true;
    thread_.join();
  }

 private:
  rt::atomic<bool> over_{false};
  std::thread thread_{[this] {
    for (int n = 0; n < 3000 && !over_; ++n) {
      const rt::stopped_world w;
      rt::sync_trace();
    }
  }};
};

TEST(Conformance, TRC_05_pictures_without_end) {
  trace_file f;
  run_clean(at_least_procs(2), [&] {
    trace::start(f.path());
    {
      const pictures meanwhile;
      mix(100);
    }
    trace::stop();
  });
  (void)f.summary();
}

// They lose their P in a call, and end while the world stands still: so does the name, which says
// how long a record of the picture is.
TEST(Conformance, TRC_05_pictures_of_named_ones_that_end_without_a_P) {
  trace_file f;
  run_clean(with_procs(2), [&] {
    trace::start(f.path());
    {
      const pictures meanwhile;
      for (int i = 0; i < full_or(100, 30, 10); ++i) {
        for (long k = 0; k < 8; ++k) {
          go({.name = "napper"}, [k] {
            const timespec t{0, 200'000 + k * 10'000};
            ::nanosleep(&t, nullptr);
          });
        }
        EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }));
      }
    }
    trace::stop();
  });
  (void)f.summary();
}

TEST(Conformance, TRC_05_resizing_while_tracing) {
  trace_file f;
  run_clean(with_procs(1), [&] {
    trace::start(f.path());
    scope s;
    s.go([] { mix(100); });
    for (const int n : {1, 2, 4, 8, 16, 8, 4, 2, 1}) {
      weft::set_procs(n);
      sleep_for(1ms);
    }
    s.wait();
    trace::stop();
  });
  EXPECT_NE(f.summary().find(" procs\n"), std::string::npos);
}

// -- TRC-07

TEST(Conformance, TRC_07_the_recorder_refuses) {
  trace_file f;
  run_clean([&] {
    EXPECT_THROW(trace::write(f.path()), std::logic_error);
    trace::record();
    EXPECT_THROW(trace::record(), std::logic_error);
    EXPECT_THROW(trace::start(f.path()), std::logic_error);
    EXPECT_THROW(trace::write("/nonexistent/weft.trace"), std::system_error);
    trace::stop();
    EXPECT_THROW(trace::write(f.path()), std::logic_error);
  });
  EXPECT_EQ(f.size(), 0);
}

TEST(Conformance, TRC_07_two_write_at_once) {
  trace_file a, b;
  run_clean(at_least_procs(2), [&] {
    trace::record();
    scope s;
    s.go([] { mix(50); });
    s.go([&] { trace::write(a.path()); });
    s.go([&] { trace::write(b.path()); });
    s.wait();
    trace::stop();
  });
  (void)a.summary();
  (void)b.summary();
}

TEST(Conformance, TRC_07_it_holds_the_last_of_it) {
  struct limit {
    std::chrono::nanoseconds age;
    std::size_t bytes;
  };
  for (const limit l : {limit{1ms, 16 << 20}, limit{1h, 16}}) {
    trace_file f;
    run_clean(at_least_procs(2), [&] {
      trace::record({.age = l.age, .bytes = l.bytes});
      trace::log("long ago");
      const auto until = steady::now() + std::chrono::milliseconds(by_effort(3000, 1600));
      while (steady::now() < until) {
        mix(20);
        sleep_for(20ms);
      }
      trace::log("just now");
      trace::write(f.path());
      trace::stop();
    });
    const std::string said = f.events();
    std::vector<std::string> lines;
    std::istringstream in(said);
    int syncs = 0;
    for (std::string line; std::getline(in, line);) {
      if (line.find(" at sync n=") != std::string::npos) ++syncs;
      lines.push_back(line);
    }
    ASSERT_FALSE(lines.empty());
    EXPECT_LE(syncs, 3);
    EXPECT_NE(lines.front().find(" at sync n="), std::string::npos) << lines.front();
    EXPECT_TRUE(has_line(said, {"just now"}));
    EXPECT_FALSE(has_line(said, {"long ago"}));
    EXPECT_GE(syncs, 2);
  }
}

}  // namespace
}  // namespace weft::test
