// SPDX-License-Identifier: Apache-2.0
// Random programs of goroutines, plain threads and channels, checked by what must hold of any
// interleaving:
//   - each value that was sent arrives once, and none that was not;
//   - at one receiver the values of one sender on one channel come in order;
//   - what starts after a close has returned sees it; nobody sees a close that has not begun, nor a
//     value after the end;
//   - when nothing moves, no two wait that could serve each other.
//
// WEFT_STRESS_SEED replays one seed; WEFT_STRESS_SEEDS and WEFT_STRESS_OPS say how many seeds and
// how many operations each; WEFT_STRESS_SECONDS how long to go on.
#include <array>
#include <optional>
#include <string>

#include "stress/support.h"
#include "support/channels.h"
#include "weft/chan.hpp"
#include "weft/select.hpp"

namespace weft::stress {
namespace {

using namespace std::chrono_literals;
using test::sanitized;

// -- two kinds of element: one that is copied by bytes, one that is only moved

struct item {
  std::uint64_t tag = 0, check = 0;
};
using boxed = std::unique_ptr<item>;

template <class T>
T make(std::uint64_t tag) {
  if constexpr (std::is_same_v<T, item>) {
    return {tag, ~tag};
  } else {
    return std::make_unique<item>(item{tag, ~tag});
  }
}
const item* look(const item& v) { return &v; }
const item* look(const boxed& v) { return v.get(); }

constexpr std::size_t max_lanes = 32, max_actors = 16;

template <class T>
struct lane {
  lane(std::size_t n, int capacity) : id(n), c(capacity), cap(static_cast<std::size_t>(capacity)) {}
  const std::size_t id;
  const chan<T> c;
  const std::size_t cap;
  std::atomic<bool> close_begun{false}, close_done{false};
};

// Of each value: not sent, under way, arrived.
enum : std::uint8_t { unsent, sent, arrived };

template <class T>
struct world {
  explicit world(std::uint64_t s, std::uint64_t n) : seed(s), budget(n) {}
  const std::uint64_t seed, budget;
  checker check;
  std::atomic<std::uint64_t> begun{0}, progress{0};
  std::atomic<bool> stopping{false};
  std::atomic<int> alive{0};
  std::atomic<std::uint64_t> values{0}, waits{0};

  std::mutex lock;
  std::vector<std::shared_ptr<lane<T>>> lanes;      // all there ever were
  std::array<std::shared_ptr<lane<T>>, 6> current;  // what actors choose from
  std::size_t slots = 0;

  std::array<std::vector<std::atomic<std::uint8_t>>, max_actors> state;
  std::array<std::atomic<std::uint64_t>, max_actors> wants{};  // lanes: received from | sent to

  std::shared_ptr<lane<T>> add_lane(int capacity) {  // under lock
    lanes.push_back(std::make_shared<lane<T>>(lanes.size(), capacity));
    return lanes.back();
  }
};

constexpr int capacities[] = {0, 0, 0, 1, 1, 2, 3, 8, 50};

// One party of the program.
template <class T>
class actor {
 public:
  using lane_ref = std::shared_ptr<lane<T>>;

  actor(world<T>& w, std::size_t id) : w_(w), id_(id), r_(w.seed * 1000 + id) {}

  void live() {
    while (!w_.stopping && w_.begun.fetch_add(1) < w_.budget) step();
  }

  void step() {
    const lane_ref a = pick();
    switch (r_.below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
        plain(a);
        break;
      case 6:
        try_send(a);
        break;
      case 7:
        try_recv(a);
        break;
      case 8:
        send_timed(a);
        break;
      case 9:
        recv_timed(a);
        break;
      case 10:
      case 11:
      case 12:
        select_some(a, pick());
        break;
      case 13:
        select_many();
        break;
      case 14:
        w_.check(a->c.len() <= a->cap && a->c.cap() == a->cap, "len");
        if (a->close_done) w_.check(a->c.closed(), "closed: not yet");
        if (a->c.closed()) w_.check(a->close_begun, "closed: too early");
        if (r_.below(2) == 0) yield();
        break;
      case 15:
        if (r_.below(200) == 0) close(a);
        break;
    }
    ++w_.progress;
  }

  void try_send(const lane_ref& a) {
    const bool closed_before = a->close_done;
    T v = fresh();
    try {
      const bool ok = a->c.try_send(std::move(v));
      w_.check(!closed_before, "try_send on a closed channel");
      if (!ok) take_back(v);
    } catch (const closed_channel&) {
      refused(a, v);
    }
  }
  void try_recv(const lane_ref& a) {
    const bool closed_before = a->close_done;
    std::optional<T> v;
    const recv_status s = a->c.try_recv(v);
    w_.check(v.has_value() == (s == recv_status::ok), "try_recv: out");
    if (s == recv_status::empty) w_.check(!closed_before, "try_recv: empty though closed");
    if (s != recv_status::empty) received(a, v);
  }
  void close(const lane_ref& a) {
    if (!a->close_begun.exchange(true)) {
      a->c.close();
      a->close_done = true;
      replace(a);
    } else if (a->close_done) {
      try {
        a->c.close();
        w_.check(false, "closed twice");
      } catch (const closed_channel&) {
      }
    }
  }

 private:
  lane_ref pick() {
    const std::lock_guard hold(w_.lock);
    return w_.current[r_.below(static_cast<std::uint32_t>(w_.slots))];
  }
  void replace(const lane_ref& old) {
    const std::lock_guard hold(w_.lock);
    if (w_.stopping || w_.lanes.size() == max_lanes) return;
    for (auto& c : w_.current) {
      if (c == old) c = w_.add_lane(capacities[r_.below(std::size(capacities))]);
    }
  }

  T fresh() {
    const std::uint64_t n = next_++;
    w_.state[id_][n].store(sent, std::memory_order_relaxed);
    return make<T>(id_ << 32 | n);
  }
  // It was not taken: it is whole, and nobody has it.
  void take_back(const T& v) {
    const item* i = look(v);
    w_.check(i != nullptr && i->check == ~i->tag, "not taken, but moved from");
    if (i == nullptr) return;
    auto& s = w_.state[id_][i->tag & 0xffffffff];
    w_.check(s.exchange(unsent) == sent, "not taken, but arrived");
  }
  void refused(const lane_ref& a, const T& v) {
    w_.check(a->close_begun, "send on a channel nobody has closed");
    take_back(v);
  }
  void received(const lane_ref& a, const std::optional<T>& v) {
    if (!v) {
      w_.check(a->close_begun, "the end of a channel nobody has closed");
      drained_[a->id] = true;
      return;
    }
    w_.check(!drained_[a->id], "a value after the end");
    const item* i = look(*v);
    w_.check(i != nullptr && i->check == ~i->tag, "a value is broken");
    if (i == nullptr) return;
    const std::uint64_t from = i->tag >> 32, n = i->tag & 0xffffffff;
    w_.check(w_.state[from][n].exchange(arrived) == sent, "a value came twice or was never sent");
    std::int64_t& last = last_[a->id][from];
    w_.check(static_cast<std::int64_t>(n) > last, "out of order");
    last = static_cast<std::int64_t>(n);
    w_.values.fetch_add(1, std::memory_order_relaxed);
  }

  // What this actor waits for, for the one who looks when nothing moves.
  struct wanting {
    std::atomic<std::uint64_t>& w;
    wanting(actor& a, std::uint64_t recvs, std::uint64_t sends) : w(a.w_.wants[a.id_]) {
      w = recvs | sends << 32;
    }
    ~wanting() { w = 0; }
  };
  static std::uint64_t bit(const lane_ref& a) { return 1ULL << a->id; }

  // Mostly what somebody waits for, else all would soon be blocked.
  void plain(const lane_ref& a) {
    bool sends = r_.below(2) == 0;
    if (r_.below(8) != 0) {
      std::uint64_t all = 0;
      for (const auto& want : w_.wants) all |= want.load(std::memory_order_relaxed);
      const bool recv_wanted = (all & bit(a)) != 0, send_wanted = (all >> 32 & bit(a)) != 0;
      if (a->c.len() != 0 || send_wanted) {
        sends = recv_wanted && sends;
      } else if (recv_wanted || a->cap != 0) {
        sends = true;
      } else {
        return sends ? send_timed(a) : recv_timed(a);
      }
    }
    sends ? send_plain(a) : recv_plain(a);
  }
  void send_plain(const lane_ref& a) {
    const bool closed_before = a->close_done;
    T v = fresh();
    const wanting want(*this, 0, bit(a));
    try {
      a->c.send(std::move(v));
      w_.check(!closed_before, "send on a closed channel");
    } catch (const closed_channel&) {
      refused(a, v);
    }
  }
  void recv_plain(const lane_ref& a) {
    const wanting want(*this, bit(a), 0);
    if (r_.below(8) != 0) {
      received(a, a->c.recv());
      return;
    }
    std::uint32_t n = 1 + r_.below(4);
    for (const T& v : a->c) {  // NOLINT
      received_in_range(a, v);
      if (--n == 0) return;
    }
    received(a, std::nullopt);
  }
  void received_in_range(const lane_ref& a, const T& v) {
    if constexpr (std::is_same_v<T, item>) {
      received(a, v);
    } else {
      received(a, make<T>(v->tag));
    }
  }
  void send_timed(const lane_ref& a) {
    T v = fresh();
    try {
      if (a->c.send_for(std::move(v), some_time()) != send_status::ok) take_back(v);
    } catch (const closed_channel&) {
      refused(a, v);
    }
  }
  void recv_timed(const lane_ref& a) {
    std::optional<T> v;
    const recv_status s = a->c.recv_for(v, some_time());
    w_.check(s != recv_status::empty, "recv_for: empty");
    if (s != recv_status::timeout) received(a, v);
  }
  std::chrono::microseconds some_time() {
    return std::chrono::microseconds(r_.below(4) == 0 ? 0 : r_.below(80));
  }

  void select_some(const lane_ref& a, const lane_ref& b) {
    T v = fresh(), u = fresh();
    bool v_gone = false, u_gone = false;
    const auto from = [this](const lane_ref& l) {
      return [this, &l](std::optional<T> got) { received(l, got); };
    };
    const auto gone = [](bool& flag) { return [&flag] { flag = true; }; };
    try {
      switch (r_.below(3) == 0 ? r_.below(6) : 2 + r_.below(4)) {
        case 0: {
          const wanting want(*this, bit(a) | bit(b), 0);
          select(recv(a->c, from(a)), recv(b->c, from(b)));
          break;
        }
        case 1: {
          const wanting want(*this, bit(a), bit(b));
          select(recv(a->c, from(a)), send(b->c, std::move(v), gone(v_gone)));
          break;
        }
        case 2:
          select(send(a->c, std::move(v), gone(v_gone)), send(b->c, std::move(u), gone(u_gone)),
                 timeout(some_time()));
          break;
        case 3:
          select(recv(a->c, from(a)), send(b->c, std::move(v), gone(v_gone)), otherwise());
          break;
        case 4: {  // in both directions, twice
          const wanting want(*this, bit(a), bit(a));
          select(recv(a->c, from(a)), send(a->c, std::move(v), gone(v_gone)),
                 send(a->c, std::move(u), gone(u_gone)), recv(a->c, from(a)));
          break;
        }
        case 5:
          select(recv(a->c, from(a)), recv(b->c, from(b)), timeout(some_time()),
                 recv(chan<T>(nullptr)));
          break;
      }
    } catch (const closed_channel&) {
      w_.check(a->close_begun || b->close_begun, "select: a channel nobody has closed");
    }
    if (!v_gone) take_back(v);
    if (!u_gone) take_back(u);
  }

  void select_many() {
    selector s;
    std::array<lane_ref, 12> ls;
    std::array<std::uint64_t, 12> tags{};
    const std::uint32_t n = 1 + r_.below(12);
    std::uint64_t recvs = 0, sends = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      const lane_ref& l = ls[i] = pick();
      if (r_.below(2) == 0) {
        s.recv(l->c, [this, &l](std::optional<T> got) { received(l, got); });
        recvs |= bit(l);
      } else {
        T v = fresh();
        tags[i] = look(v)->tag;
        s.send(l->c, std::move(v));
        sends |= bit(l);
      }
    }
    const std::uint32_t end = r_.below(6) == 0 ? 2 : r_.below(2);
    if (end == 0) s.otherwise();
    if (end == 1) s.timeout(some_time());
    int won = -1;
    try {
      const wanting want(*this, end < 2 ? 0 : recvs, end < 2 ? 0 : sends);
      won = s.wait();
    } catch (const closed_channel&) {
      bool any = false;
      for (std::uint32_t i = 0; i < n; ++i) any |= ls[i]->close_begun;
      w_.check(any, "selector: a channel nobody has closed");
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      if (tags[i] == 0 || won == static_cast<int>(i)) continue;
      auto& st = w_.state[id_][tags[i] & 0xffffffff];
      w_.check(st.exchange(unsent) == sent, "selector: not taken, but arrived");
    }
  }

  world<T>& w_;
  const std::size_t id_;
  rt::random r_;
  std::uint64_t next_ = 1;
  std::array<bool, max_lanes> drained_{};
  std::array<std::array<std::int64_t, max_actors>, max_lanes> last_{};
};

// Whether two who wait could serve each other, or one the buffer, as far as one can see.
template <class T>
bool somebody_could_go_on(world<T>& w, const std::vector<std::shared_ptr<lane<T>>>& lanes) {
  for (const auto& l : lanes) {
    int recvs = 0, sends = 0, both = 0;
    for (const auto& a : w.wants) {
      const std::uint64_t v = a;
      const bool r = (v >> l->id & 1) != 0, s = (v >> (l->id + 32) & 1) != 0;
      recvs += r ? 1 : 0;
      sends += s ? 1 : 0;
      both += r && s ? 1 : 0;
    }
    if (l->close_begun && recvs + sends > 0) return true;
    const std::size_t n = l->c.len();
    if (recvs > 0 && n > 0) return true;
    if (sends > 0 && n < l->cap) return true;
    if (recvs > 0 && sends > 0 && recvs + sends - both > 1) return true;
  }
  return false;
}

template <class T>
void one_program(std::uint64_t seed, std::uint64_t budget, int procs) {
  world<T> w(seed, budget);
  rt::random r(seed);
  const std::size_t goroutines = 2 + r.below(8), threads = r.below(4);
  const std::size_t actors = goroutines + threads;
  w.slots = 1 + r.below(static_cast<std::uint32_t>(w.current.size()));
  for (std::size_t i = 0; i < w.slots; ++i)
    w.current[i] = w.add_lane(capacities[r.below(std::size(capacities))]);
  // Actor `actors` is main. A step makes 12 values at most, and few make so many.
  for (std::size_t i = 0; i <= actors; ++i)
    w.state[i] = std::vector<std::atomic<std::uint8_t>>(budget * 3 + 200'000);

  const std::string name = "chan: seed " + std::to_string(seed);
  const watchdog dog(w.progress, name.c_str());
  const auditor audits;
  run(test::with_procs(procs), [&] {
    std::vector<std::thread> plain;
    w.alive = static_cast<int>(actors);
    for (std::size_t i = 0; i < actors; ++i) {
      const auto body = [&w, i] {
        auto self = std::make_unique<actor<T>>(w, i);
        self->live();
        --w.alive;
      };
      if (i < goroutines) {
        go(body);
      } else {
        plain.emplace_back(body);
      }
    }
    auto self = std::make_unique<actor<T>>(w, actors);
    const auto all_lanes = [&] {
      const std::lock_guard hold(w.lock);
      return w.lanes;
    };
    std::uint64_t last = 0;
    int still = 0;
    while (w.begun < w.budget) {
      test::pause(50us);
      const std::uint64_t now = w.progress;
      still = now == last ? still + 1 : 0;
      last = now;
      if (still < 2) continue;
      // Nobody moves: that must be because nobody can.
      const auto lanes = all_lanes();
      const std::int64_t until = nanotime() + 10 * second;
      while (w.progress == now && somebody_could_go_on(w, lanes)) {
        if (nanotime() > until) {
          w.check(false, "two wait that could serve each other");
          break;
        }
        test::pause(1ms);
      }
      ++w.waits;
      for (const auto& l : lanes) {  // gives them something to do
        if (l->close_begun) continue;
        self->try_recv(l);
        self->try_send(l);
      }
      w.begun += 2;
      still = 0;
    }
    {
      const std::lock_guard hold(w.lock);
      w.stopping = true;
    }
    for (bool ended = false; !ended;) {
      ended = w.alive == 0;
      for (const auto& l : all_lanes()) self->close(l);
      test::pause(100us);
    }
    for (auto& t : plain) t.join();
    for (const auto& l : all_lanes()) {
      w.check(l->close_done, "a channel left open");
      while (l->c.len() != 0) self->try_recv(l);
      std::optional<T> v;
      w.check(l->c.try_recv(v) == recv_status::closed, "not at its end");
    }
    EXPECT_TRUE(test::eventually([] { return num_goroutines() == 1; }));
    EXPECT_EQ(debug::audit(), 0);
  });
  std::uint64_t lost = 0;
  for (const auto& of : w.state) {
    for (const auto& s : of) lost += s == sent ? 1 : 0;
  }
  EXPECT_EQ(lost, 0U) << "values lost; seed " << seed;
  EXPECT_GT(w.values, 0U) << "seed " << seed;
  SCOPED_TRACE(name);
  w.check.report();
}

class Chan : public Procs {};

TEST_P(Chan, RandomPrograms) {
  const std::uint64_t ops = from_env("WEFT_STRESS_OPS", sanitized ? 5'000 : 50'000);
  std::uint64_t seeds = from_env("WEFT_STRESS_SEEDS", sanitized ? 5 : test::by_effort(20));
  std::uint64_t first = 1 + static_cast<std::uint64_t>(procs()) * 1'000;
  if (const std::uint64_t seed = from_env("WEFT_STRESS_SEED", 0); seed != 0) {
    first = seed;
    seeds = 1;
  }
  const std::int64_t until = nanotime() + duration_ns(0);
  for (std::uint64_t s = first; (s < first + seeds || nanotime() < until) && !HasFailure(); ++s) {
    if (s % 2 == 0) {
      one_program<item>(s, ops, procs());
    } else {
      one_program<boxed>(s, ops, procs());
    }
  }
}
WEFT_STRESS_PROCS(Chan);

}  // namespace
}  // namespace weft::stress
