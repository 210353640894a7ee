// SPDX-License-Identifier: Apache-2.0
// The controlled scheduler, and how all choices are enumerated.
//
// Threads are fibers of one OS thread. Each stands before its next visible operation (an atomic, a
// fence, a futex call); the engine picks one, which performs it and runs on to the next. What lies
// between is plain code: its order does not matter unless it races, and races.cc sees to that.
//
// An execution is the list of its choices: which thread, and which store, wherever there was more
// than one. The next execution repeats the list up to the last choice that has an alternative, and
// takes that: depth first. Everything else must be the same each time; if it is not, the engine
// says so.
//
// Partial-order reduction by sleep sets: when all that begins with thread a at some point has been
// seen, and another thread is tried there, a sleeps until somebody performs an operation that
// depends on a's next one. An execution in which only sleepers are left equals one that was seen.
// Two operations depend on each other (depend()) if their order could matter to anybody:
// same location and one writes; two seq_cst loads of one location; a seq_cst fence and any seq_cst
// operation; futex calls of one word; a spin-wait and any write.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/atomic.h"
#include "systematic/checker.h"
#include "systematic/memory.h"

namespace systematic {

enum class op_kind : std::uint8_t {
  begin,
  load,
  store,
  modify,  // also compare_exchange
  fence,
  relax,
  futex_wait,
  futex_sleep,  // asleep; to go on is to let the deadline pass
  futex_wake,
  gate_open,
  gate_pass,
  go_on,  // woken
};

struct op {
  op_kind kind = op_kind::begin;
  const void* at = nullptr;
  order how = order::relaxed;
  bool deadline = false;
  where line{};

  bool writes() const noexcept { return kind == op_kind::store || kind == op_kind::modify; }
  bool access() const noexcept { return kind == op_kind::load || writes(); }
};

bool depend(const op& a, const op& b) noexcept;

struct fiber {
  std::function<void()> fn;
  void* sp = nullptr;
  char* stack = nullptr;
  op next;
  bool ended = false;
  int spurious = 0, spins = 0;  // what is left of its share
  int priority = 0;             // PCT
  std::uint64_t asleep_since = 0;
};

class engine {
 public:
  result run_all(const options& o, const body& b);
  result run_one(const options& o, const body& b, const std::string& replay);

  // -- for the operations, on a fiber.
  bool on_fiber() const noexcept { return current_ >= 0; }
  int current() const noexcept { return current_; }
  fiber& self() noexcept { return fibers_[static_cast<unsigned>(current_)]; }
  void stand_before(op next) noexcept;  // returns when it is to be performed
  void sleep(op asleep) noexcept;       // the same, for one that has begun to wait
  int choose(int n) noexcept;
  void wake_sleepers(const void* word, int n) noexcept;
  int stale_limit() const noexcept { return options_.stale; }
  [[noreturn]] void fail_here(std::string what);
  void note(const std::string& text);  // into the printed interleaving
  bool noting() const noexcept { return noting_; }
  std::string name_of(const void* at);

  void run_threads(std::initializer_list<std::function<void()>> fs);
  void set_name(const void* at, std::string name) { names_[at] = std::move(name); }
  void set_thread_names(std::initializer_list<const char*> names) {
    thread_names_.assign(names.begin(), names.end());
  }
  struct gate_state {
    bool is_open = false;
    view knows;
    void open(const view& v) {
      is_open = true;
      knows.join(v);
    }
  };
  std::map<const void*, gate_state> gates;

 private:
  struct choice {
    bool of_thread;
    std::uint32_t possible;  // threads: a mask; else how many
    std::uint32_t picked;
    std::uint32_t done = 0;  // threads: tried before
    std::uint32_t asleep = 0;
  };
  enum class mode { all, random, replay };

  void execute(const body& b, result& r);
  bool next_execution() noexcept;
  std::uint32_t enabled() noexcept;
  int pick_thread(std::uint32_t enabled) noexcept;
  int pick_random(std::uint32_t enabled) noexcept;
  void fall_asleep_and_wake(int picked, std::uint32_t done) noexcept;
  void not_determined();
  void switch_to(int t) noexcept;
  void switch_to_scheduler() noexcept;
  std::string choices_as_text() const;
  static void fiber_main(void* self, void*, void*);

  options options_;
  mode mode_ = mode::all;
  std::vector<choice> choices_;
  std::size_t depth_ = 0;  // how many choices this execution has made
  std::uint32_t sleeping_ = 0;
  int last_ = -1, preemptions_ = 0, steps_ = 0, typical_steps_ = 50;
  std::mt19937_64 random_;
  bool by_priority_ = false;
  std::vector<int> change_at_;

  std::array<fiber, max_threads> fibers_;
  int nfibers_ = 0;
  int current_ = -1;
  void* scheduler_sp_ = nullptr;
  std::string failure_;
  std::uint64_t sleeps_ = 0;
  std::string replay_;

  bool noting_ = false;
  std::string notes_;
  std::map<const void*, std::string> names_;
  std::vector<std::string> thread_names_;
};

extern engine the_engine;

// While one of these lives the checker itself runs: its memory is not watched.
class checker_at_work {
 public:
  checker_at_work() noexcept : was_(busy) { busy = true; }
  checker_at_work(const checker_at_work&) = delete;
  checker_at_work& operator=(const checker_at_work&) = delete;
  ~checker_at_work() { busy = was_; }
  static bool busy;

 private:
  bool was_;
};

// races.cc
void forget_plain_accesses() noexcept;
void release_dead_memory() noexcept;

}  // namespace systematic
