// SPDX-License-Identifier: Apache-2.0
// Goroutines and plain threads on either side of every operation, inside a run and outside.
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/channels.h"
#include "unit/sched/support.h"
#include "weft/chan.hpp"
#include "weft/select.hpp"

namespace weft {
namespace {

using namespace sched_test;
using namespace std::chrono_literals;
using test::pause;

class ChanThreads : public GoTest {};

using channel = chan<std::unique_ptr<int>>;

// -- every way to send one value, and to receive one; each ends only when it is done

struct sending {
  const char* name;
  void (*one)(const channel&, int);
};
struct receiving {
  const char* name;
  std::optional<int> (*one)(const channel&);
};

std::optional<int> number(const std::optional<std::unique_ptr<int>>& v) {
  return v ? std::optional<int>(**v) : std::nullopt;
}

constexpr sending sends[] = {
    {"send", [](const channel& c, int i) { c.send(std::make_unique<int>(i)); }},
    {"try_send",
     [](const channel& c, int i) {
       auto v = std::make_unique<int>(i);
       while (!c.try_send(std::move(v))) pause(10us);
     }},
    {"send_for, long",
     [](const channel& c, int i) {
       EXPECT_EQ(c.send_for(std::make_unique<int>(i), 1h), send_status::ok);
     }},
    {"send_for, short",
     [](const channel& c, int i) {
       auto v = std::make_unique<int>(i);
       while (c.send_for(std::move(v), 50us) != send_status::ok) {
       }
     }},
    {"select",
     [](const channel& c, int i) {
       EXPECT_EQ(select(recv(channel()), send(c, std::make_unique<int>(i))), 1);
     }},
    {"select with a timeout",
     [](const channel& c, int i) {
       auto v = std::make_unique<int>(i);
       while (select(send(c, std::move(v)), recv(channel()), timeout(50us)) != 0) {
       }
     }},
    {"selector",
     [](const channel& c, int i) {
       selector s;
       s.recv(channel()).send(c, std::make_unique<int>(i)).timeout(1h);
       EXPECT_EQ(s.wait(), 1);
     }},
};

constexpr receiving receives[] = {
    {"recv", [](const channel& c) { return number(c.recv()); }},
    {"try_recv",
     [](const channel& c) {
       std::optional<std::unique_ptr<int>> v;
       for (;;) {
         const recv_status s = c.try_recv(v);
         if (s == recv_status::ok || s == recv_status::closed) return number(v);
         pause(10us);
       }
     }},
    {"recv_for, long",
     [](const channel& c) {
       std::unique_ptr<int> v;
       return c.recv_for(v, 1h) == recv_status::ok ? std::optional<int>(*v) : std::nullopt;
     }},
    {"recv_for, short",
     [](const channel& c) {
       std::optional<std::unique_ptr<int>> v;
       while (c.recv_for(v, 50us) == recv_status::timeout) {
       }
       return number(v);
     }},
    {"select",
     [](const channel& c) {
       std::optional<int> got;
       EXPECT_EQ(
           select(recv(channel()),
                  recv(c, [&](const std::optional<std::unique_ptr<int>>& v) { got = number(v); })),
           1);
       return got;
     }},
    {"select with a timeout",
     [](const channel& c) {
       std::optional<int> got;
       while (
           select(recv(c, [&](const std::optional<std::unique_ptr<int>>& v) { got = number(v); }),
                  recv(channel()), timeout(50us)) != 0) {
       }
       return got;
     }},
    {"selector",
     [](const channel& c) {
       std::optional<int> got;
       selector s;
       s.recv(channel()).recv(c, [&](std::optional<std::unique_ptr<int>> v) { got = number(v); });
       EXPECT_EQ(s.wait(), 1);
       return got;
     }},
};

// A goroutine or a thread that is waited for.
class party {
 public:
  party(bool thread, std::function<void()> f) {
    if (thread) {
      promise<void> end;
      done_ = end.get_task();
      thread_ = std::thread([f = std::move(f), end = std::move(end)]() mutable {
        f();
        end.set_value();
      });
    } else {
      done_ = async(std::move(f));
    }
  }
  party(party&&) = default;
  ~party() {
    if (done_.valid()) done_.wait();  // parks; a join would keep the P
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
  task<void> done_;
};

// Values one by one, then a close that finds the receiver waiting.
void meet(const sending& s, const receiving& r, bool thread_sends, bool thread_receives, int cap) {
  const bool both_try = std::string(s.name) == "try_send" && std::string(r.name) == "try_recv";
  if (both_try && cap == 0) return;  // they never meet
  constexpr int n = scaled(20) + 2;
  const channel c(cap);
  std::atomic<bool> good{true};
  {
    const party receiver(thread_receives, [&] {
      for (int i = 0; i < n; ++i) {
        if (r.one(c) != i) good = false;
      }
      if (r.one(c) != std::nullopt) good = false;
    });
    const party sender(thread_sends, [&] {
      for (int i = 0; i < n; ++i) s.one(c, i);
      c.close();
    });
  }
  EXPECT_TRUE(good) << s.name << (thread_sends ? " by a thread, " : " by a goroutine, ") << r.name
                    << (thread_receives ? " by a thread" : " by a goroutine") << ", capacity "
                    << cap;
}

TEST_F(ChanThreads, EveryPairOfOperations) {
  for (const int procs : {1, 2, 3, 16}) {
    run_on(procs, [] {
      for (const sending& s : sends) {
        for (const receiving& r : receives) {
          for (const int kinds : {0, 1, 2, 3}) {
            for (const int cap : {0, 2}) meet(s, r, (kinds & 1) != 0, (kinds & 2) != 0, cap);
          }
        }
      }
    });
  }
}

TEST_F(ChanThreads, WithoutARun) {
  for (const sending& s : sends) {
    for (const receiving& r : receives) {
      for (const int cap : {0, 2}) meet(s, r, true, true, cap);
    }
  }
}

// A close finds senders and receivers of both kinds, in every operation.
TEST_F(ChanThreads, CloseFindsEverybody) {
  for (const int procs : {1, 2, 16}) {
    for (const bool thread_closes : {false, true}) {
      run_on(procs, [thread_closes] {
        const channel empty, full(1);
        full.send(std::make_unique<int>(0));
        std::atomic<int> ended{0}, thrown{0};
        {
          std::vector<party> all;
          for (const bool thread : {false, true}) {
            for (const receiving& r : receives) {
              all.emplace_back(thread, [&] {
                if (!r.one(empty)) ++ended;
              });
            }
            for (const sending& s : sends) {
              all.emplace_back(thread, [&] {
                try {
                  s.one(full, 1);
                } catch (const closed_channel&) {
                  ++thrown;
                }
              });
            }
          }
          pause(2ms);
          const party closer(thread_closes, [&] {
            empty.close();
            full.close();
          });
        }
        EXPECT_EQ(ended, static_cast<int>(2 * std::size(receives)));
        EXPECT_EQ(thrown, static_cast<int>(2 * std::size(sends)));
        EXPECT_EQ(number(full.recv()), 0);
        EXPECT_FALSE(full.recv());
      });
    }
  }
}

// Everybody at once on one channel: each value arrives once.
TEST_F(ChanThreads, AllAtOnce) {
  run_on_each([] {
    for (const int cap : {0, 3}) {
      constexpr int each = scaled(200);
      constexpr int senders = 2 * static_cast<int>(std::size(sends));
      const channel c(cap);
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(senders * each));
      {
        std::vector<party> in, out;
        for (const bool thread : {false, true}) {
          for (const receiving& r : receives) {
            out.emplace_back(thread, [&] {
              while (const auto v = r.one(c)) ++seen.at(static_cast<std::size_t>(*v));
            });
          }
        }
        int k = 0;
        for (const bool thread : {false, true}) {
          for (const sending& s : sends) {
            in.emplace_back(thread, [&, k] {
              for (int i = 0; i < each; ++i) s.one(c, k * each + i);
            });
            ++k;
          }
        }
        in.clear();
        c.close();
      }
      for (const auto& n : seen) ASSERT_EQ(n, 1);
    }
  });
}

// Threads that wait before a run starts are served by it, and those that wait when it ends go on.
TEST_F(ChanThreads, OverTheEdgesOfARun) {
  const chan<int> to_run, from_run, later;
  std::thread before([&] {
    to_run.send(1);
    EXPECT_EQ(from_run.recv(), 2);
  });
  std::thread across([&] { EXPECT_EQ(later.recv(), 3); });
  run_on(2, [&] {
    EXPECT_EQ(to_run.recv(), 1);
    from_run.send(2);
  });
  later.send(3);
  before.join();
  across.join();
  // A goroutine made outside a run starts with the next one.
  const chan<int> c;
  go([c] { c.send(4); });
  int v = 0;
  EXPECT_EQ(c.recv_for(v, 1ms), recv_status::timeout);
  run_on(1, [&] { EXPECT_EQ(c.recv(), 4); });
}

}  // namespace
}  // namespace weft
