// SPDX-License-Identifier: Apache-2.0
// See engine.h. The scheduler runs on the test's own stack, operations on the fibers'; an execution
// that is given up is left by an exception through the test's body, and its fibers are dropped as
// they stand.
#include "systematic/engine.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "context/context.h"

namespace systematic {
namespace {

constexpr std::size_t stack_size = 256 * 1024;
constexpr std::string_view digits = "0123456789abcdefghijklmnopqrstuvwxyz";

struct execution_over {};  // failed, or equal to one that was seen
struct failed : execution_over {};

constexpr std::uint32_t bit(int t) noexcept { return 1U << t; }

}  // namespace

engine the_engine;
bool checker_at_work::busy = false;

bool depend(const op& a, const op& b) noexcept {
  if (a.kind == op_kind::relax || b.kind == op_kind::relax) return a.writes() || b.writes();
  const bool sc = a.how == order::seq_cst && b.how == order::seq_cst;
  if (a.kind == op_kind::fence || b.kind == op_kind::fence) return sc;
  if (a.at == nullptr || a.at != b.at) return false;
  if (a.access() && b.access()) return a.writes() || b.writes() || sc;
  // A futex call and an access: the kernel reads the word before the sleep.
  if (a.access() || b.access())
    return (a.writes() && b.kind == op_kind::futex_wait) ||
           (b.writes() && a.kind == op_kind::futex_wait);
  return true;
}

// -- one execution

void engine::fiber_main(void* self, void*, void*) {
  auto* f = static_cast<fiber*>(self);
  checker_at_work::busy = false;
  f->fn();
  checker_at_work::busy = true;
  f->ended = true;
  the_engine.switch_to_scheduler();
}

void engine::switch_to(int t) noexcept {
  current_ = t;
  weft_switch(&scheduler_sp_, self().sp, nullptr, nullptr, nullptr);
  current_ = -1;
}

void engine::switch_to_scheduler() noexcept {
  weft_switch(&self().sp, scheduler_sp_, nullptr, nullptr, nullptr);
}

void engine::stand_before(op next) noexcept {
  self().next = next;
  switch_to_scheduler();
}

void engine::sleep(op asleep) noexcept {
  self().asleep_since = ++sleeps_;
  stand_before(asleep);
}

void engine::wake_sleepers(const void* word, int n) noexcept {
  for (; n > 0; --n) {
    fiber* first = nullptr;
    for (int t = 0; t < nfibers_; ++t) {
      fiber& f = fibers_[static_cast<unsigned>(t)];
      if (f.next.kind != op_kind::futex_sleep || f.next.at != word) continue;
      if (first == nullptr || f.asleep_since < first->asleep_since) first = &f;
    }
    if (first == nullptr) return;
    first->next.kind = op_kind::go_on;
    first->next.at = nullptr;
  }
}

std::uint32_t engine::enabled() noexcept {
  std::uint32_t mask = 0;
  for (int t = 0; t < nfibers_; ++t) {
    const fiber& f = fibers_[static_cast<unsigned>(t)];
    if (f.ended) continue;
    bool can = true;
    if (f.next.kind == op_kind::futex_sleep) can = f.next.deadline;
    if (f.next.kind == op_kind::gate_pass) can = gates[f.next.at].is_open;
    if (f.next.kind == op_kind::relax) can = the_memory.can_relax(t) || f.spins > 0;
    if (can) mask |= bit(t);
  }
  return mask;
}

int engine::pick_random(std::uint32_t mask) noexcept {
  std::vector<int> can;
  for (int t = 0; t < nfibers_; ++t) {
    if ((mask & bit(t)) != 0) can.push_back(t);
  }
  if (!by_priority_) return can[random_() % can.size()];
  return *std::max_element(can.begin(), can.end(), [&](int a, int b) {
    return fibers_[static_cast<unsigned>(a)].priority < fibers_[static_cast<unsigned>(b)].priority;
  });
}

// What the test does between two choices depends on something else: an address, the last execution.
void engine::not_determined() { failure_ = "the execution is not determined by its choices"; }

// -1: only those who sleep could go on.
int engine::pick_thread(std::uint32_t mask) noexcept {
  const bool reduce = mode_ == mode::all && options_.preemptions < 0;
  if (mode_ != mode::random && options_.preemptions >= 0 && last_ >= 0 &&
      (mask & bit(last_)) != 0 && preemptions_ >= options_.preemptions)
    mask = bit(last_);
  if (std::popcount(mask) == 1) {
    const int only = std::countr_zero(mask);
    if (reduce && (sleeping_ & bit(only)) != 0) return -1;
    if (reduce) fall_asleep_and_wake(only, 0);
    return only;
  }
  if (depth_ < choices_.size()) {
    const choice& c = choices_[depth_++];
    if (!c.of_thread || c.possible != mask) not_determined();
    const int t = static_cast<int>(c.picked);
    if (reduce) fall_asleep_and_wake(t, c.done);
    return t;
  }
  int t;
  if (mode_ == mode::random) {
    t = pick_random(mask);
  } else if (depth_ < replay_.size()) {
    t = static_cast<int>(digits.find(replay_[depth_]));
    if (t >= nfibers_ || (mask & bit(t)) == 0) {
      not_determined();
      return -1;
    }
  } else {
    const std::uint32_t awake = mask & ~(reduce ? sleeping_ : 0);
    if (awake == 0) return -1;
    // The one that ran last, if it can: fewer switches are easier to read.
    t = last_ >= 0 && (awake & bit(last_)) != 0 ? last_ : std::countr_zero(awake);
  }
  choices_.push_back({true, mask, static_cast<std::uint32_t>(t), 0, sleeping_});
  ++depth_;
  if (reduce) fall_asleep_and_wake(t, 0);
  return t;
}

void engine::fall_asleep_and_wake(int picked, std::uint32_t done) noexcept {
  sleeping_ |= done;
  sleeping_ &= ~bit(picked);
  const op& performed = fibers_[static_cast<unsigned>(picked)].next;
  for (int t = 0; t < nfibers_; ++t) {
    if ((sleeping_ & bit(t)) != 0 && depend(fibers_[static_cast<unsigned>(t)].next, performed))
      sleeping_ &= ~bit(t);
  }
}

int engine::choose(int n) noexcept {
  if (n <= 1) return 0;
  if (depth_ < choices_.size()) {
    const choice& c = choices_[depth_++];
    if (c.of_thread || c.possible != static_cast<std::uint32_t>(n)) not_determined();
    return static_cast<int>(c.picked);
  }
  std::uint32_t picked = 0;
  // The newest store is what is mostly seen.
  if (mode_ == mode::random && random_() % 2 == 0)
    picked = static_cast<std::uint32_t>(random_() % static_cast<unsigned>(n));
  if (depth_ < replay_.size()) {
    picked = static_cast<std::uint32_t>(digits.find(replay_[depth_]));
    if (picked >= static_cast<std::uint32_t>(n)) not_determined();
  }
  choices_.push_back({false, static_cast<std::uint32_t>(n), picked, 0, 0});
  ++depth_;
  return static_cast<int>(picked);
}

void engine::run_threads(std::initializer_list<std::function<void()>> fs) {
  const checker_at_work here;
  if (fs.size() > max_threads) throw std::length_error("too many threads for the checker");
  nfibers_ = static_cast<int>(fs.size());
  the_memory.begin_threads(nfibers_);
  forget_plain_accesses();
  sleeping_ = 0;
  last_ = -1;
  int t = 0;
  for (const auto& fn : fs) {
    fiber& f = fibers_[static_cast<unsigned>(t++)];
    if (f.stack == nullptr) {
      f.stack = static_cast<char*>(::mmap(nullptr, stack_size, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    }
    f.fn = fn;
    f.next = op{};
    f.ended = false;
    f.spurious = options_.spurious;
    f.spins = options_.spins;
    f.priority = static_cast<int>(random_() % 1000) + 1000;
    f.sp = weft::rt::make_context(reinterpret_cast<std::uintptr_t>(f.stack + stack_size),
                                  &fiber_main, &f);
  }
  // Up to the first operation of each there is nothing to choose.
  for (t = 0; t < nfibers_ && failure_.empty(); ++t) switch_to(t);
  while (failure_.empty()) {
    const std::uint32_t mask = enabled();
    if (mask == 0) {
      if (std::all_of(fibers_.begin(), fibers_.begin() + nfibers_,
                      [](const fiber& f) { return f.ended; }))
        return;
      failure_ = "nobody can go on";
      for (int i = 0; i < nfibers_; ++i) {
        const fiber& f = fibers_[static_cast<unsigned>(i)];
        if (f.ended) continue;
        current_ = i;
        note(std::string("waits at ") + f.next.line.file + ":" +
             std::to_string(f.next.line.number));
        current_ = -1;
      }
      break;
    }
    if (++steps_ > options_.max_steps) {
      failure_ = "does not come to an end";
      break;
    }
    if (by_priority_ &&
        std::find(change_at_.begin(), change_at_.end(), steps_) != change_at_.end()) {
      for (int i = 0; i < nfibers_; ++i) {
        if (i == last_) fibers_[static_cast<unsigned>(i)].priority = 1000 - steps_;
      }
    }
    const int next = pick_thread(mask);
    if (!failure_.empty()) break;
    if (next < 0) throw execution_over{};
    if (last_ >= 0 && next != last_ && (mask & bit(last_)) != 0) ++preemptions_;
    last_ = next;
    switch_to(next);
  }
  throw failed{};
}

void engine::execute(const body& b, result& r) {
  the_memory.reset();
  gates.clear();
  names_.clear();
  thread_names_.clear();
  notes_.clear();
  failure_.clear();
  depth_ = 0;
  steps_ = preemptions_ = 0;
  bool complete = true;
  try {
    execution x;
    b(x);
  } catch (const execution_over&) {
    complete = false;
  }
  if (depth_ < choices_.size() && complete && failure_.empty()) not_determined();
  if (!failure_.empty()) {
    r.failure = failure_;
    r.replay = choices_as_text();
  } else {
    ++(complete ? r.executions : r.pruned);
  }
  typical_steps_ = std::max(steps_, 1);
  release_dead_memory();
}

// -- all of them

bool engine::next_execution() noexcept {
  while (!choices_.empty()) {
    choice& c = choices_.back();
    if (!c.of_thread) {
      if (++c.picked < c.possible) return true;
    } else {
      c.done |= 1U << c.picked;
      const bool reduce = options_.preemptions < 0;
      const std::uint32_t left = c.possible & ~c.done & ~(reduce ? c.asleep : 0);
      if (left != 0) {
        c.picked = static_cast<std::uint32_t>(std::countr_zero(left));
        return true;
      }
    }
    choices_.pop_back();
  }
  return false;
}

std::string engine::choices_as_text() const {
  std::string s;
  for (std::size_t i = 0; i < depth_; ++i)
    s += digits[std::min<std::size_t>(choices_[i].picked, 35)];
  return s.empty() ? "-" : s;
}

result engine::run_one(const options& o, const body& b, const std::string& replay) {
  options_ = o;
  mode_ = mode::replay;
  choices_.clear();
  by_priority_ = false;
  result r;
  noting_ = true;
  replay_ = replay == "-" ? "" : replay;
  execute(b, r);
  noting_ = false;
  replay_.clear();
  r.failure += r.failure.empty() ? "" : "\n" + notes_;
  return r;
}

result engine::run_all(const options& o, const body& b) {
  result r;
  options_ = o;
  mode_ = o.random != 0 ? mode::random : mode::all;
  choices_.clear();
  by_priority_ = false;
  std::uint64_t seed = 0;
  do {
    if (mode_ == mode::random) {
      choices_.clear();
      random_.seed(++seed);
      by_priority_ = seed % 2 == 0;
      change_at_.clear();
      for (int i = 0; i < 3; ++i)
        change_at_.push_back(static_cast<int>(random_() % static_cast<unsigned>(typical_steps_)));
    }
    execute(b, r);
    if (!r) {
      const std::string replay = r.replay, what = r.failure;
      r = run_one(o, b, replay);
      if (r) r.failure = what + "\n(and not so when it was repeated)";
      r.replay = replay;
      return r;
    }
  } while (mode_ == mode::random ? r.executions < o.random : next_execution());
  return r;
}

void engine::fail_here(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
  if (!on_fiber()) throw failed{};
  note("FAILS: " + failure_);
  for (;;) switch_to_scheduler();
}

std::string engine::name_of(const void* at) {
  const auto i = names_.find(at);
  if (i != names_.end()) return i->second;
  return "atomic" + std::to_string(the_memory.find(at, 1));
}

void engine::note(const std::string& text) {
  if (!noting_) return;
  std::string who = "T" + std::to_string(current_);
  if (current_ >= 0 && static_cast<std::size_t>(current_) < thread_names_.size())
    who = thread_names_[static_cast<unsigned>(current_)];
  who.resize(std::max<std::size_t>(who.size(), 8), ' ');
  notes_ += "  " + who + " " + text + "\n";
}

// -- what tests call

void execution::run(std::initializer_list<std::function<void()>> fs) { the_engine.run_threads(fs); }
void execution::name(const void* at, std::string name) { the_engine.set_name(at, std::move(name)); }
void execution::name_threads(std::initializer_list<const char*> names) {
  the_engine.set_thread_names(names);
}

std::string& replay_option() {
  static std::string s;
  return s;
}

result try_explore(const options& o, const body& b) { return the_engine.run_all(o, b); }

result try_replay(const options& o, const body& b, const std::string& choices) {
  return the_engine.run_one(o, b, choices);
}

void explore(const options& o, const body& b) {
  result r;
  if (!replay_option().empty()) {
    r = the_engine.run_one(o, b, replay_option());
  } else {
    r = the_engine.run_all(o, b);
  }
  std::printf("             %llu executions, %llu pruned\n",
              static_cast<unsigned long long>(r.executions),
              static_cast<unsigned long long>(r.pruned));
  if (r) return;
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  ADD_FAILURE() << r.failure << "again: weft_systematic --gtest_filter=" << info->test_suite_name()
                << '.' << info->name() << " --replay=" << r.replay;
}

void fail(std::string_view what) {
  const checker_at_work here;  // the string outlives the execution
  the_engine.fail_here(std::string(what));
}

void require(bool holds, std::string_view what, where at) {
  if (holds) return;
  const checker_at_work here;
  const std::string_view file = at.file;
  fail(std::string(what) + " does not hold (" + std::string(file.substr(file.rfind('/') + 1)) +
       ":" + std::to_string(at.number) + ")");
}

int choose(int n) {
  const checker_at_work here;
  return the_engine.choose(n);
}

int this_thread() { return the_engine.current(); }

}  // namespace systematic
