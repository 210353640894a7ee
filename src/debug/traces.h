// SPDX-License-Identifier: Apache-2.0
// Traces of goroutines: taken while the world stands still (collect), written in Go's form when it
// runs again (write). Between the two lies only an arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/g.h"
#include "debug/arena.h"
#include "debug/cfi.h"
#include "debug/symbols.h"
#include "os/clock.h"

namespace weft::rt {

// A stack, innermost frame first: all of it, or of a deep one the frames at either end. Those are
// more than are shown, because what is counted there is the user's functions: some frames hold none
// of them, some several.
struct trace {
  static constexpr std::size_t inner = 100, outer = 100;  // collected
  static constexpr std::uint64_t shown = 50;              // at either end, of more than twice that
  const std::uintptr_t* pcs = nullptr;
  std::uint32_t n = 0;
  std::uint32_t elided = 0;
  bool exact = false;  // pcs[0] is an instruction, not a return address
};

struct g_record {
  std::uint64_t goid = 0, parent = 0;
  const void* created_at = nullptr;
  g_status status = g_status::idle;
  wait_reason reason = wait_reason::none;
  bool locked = false;
  bool durable = false;  // blocked, and only its bubble can wake it
  std::uint32_t bubble = 0;
  bool elsewhere = false;  // running on another thread: its stack cannot be read
  std::uint32_t minutes = 0;
  const char* name = nullptr;  // null: it has none
  trace stack;
};

class trace_collector {
 public:
  explicit trace_collector(arena& memory) noexcept
      : memory_(memory), cache_(memory.array<cfi_cache>(1)) {}

  // Of who stands there: a goroutine, on whatever stack; a thread that is none.
  trace of_running(const G& g, const registers& here, bool exact) noexcept;
  trace of_thread(const registers& here, bool exact) noexcept;
  // One goroutine that does not run, or (with `here`) the one that `here` was taken in.
  g_record record(const G& g, const registers* here, bool exact) noexcept;
  // All goroutines of this run but `except`, from the from-th cell of their table on. The world is
  // stopped, or as still as it will get. Returns where to go on when the time is up (nanotime; < 0:
  // no limit), 0 when all have been seen.
  std::size_t all(arena_list<g_record>& out, const G* except, std::size_t from = 0,
                  std::int64_t until = -1) noexcept;

 private:
  trace walk(stack_walk w, bool exact) noexcept;
  bool same_as_last(const std::uintptr_t* pcs, std::uint32_t n) const noexcept;

  arena& memory_;
  cfi_cache* cache_;
  std::uint32_t now_s_ = static_cast<std::uint32_t>(nanotime() / 1'000'000'000);
  trace last_;  // most goroutines stand where the one before them does
};

// Those of the list, the oldest first. The table has them in batches, each from its end on (a P's
// free cells are a stack), and one P's batch before the other's. Table order if there is no memory.
class oldest_first {
 public:
  oldest_first(arena& memory, const arena_list<g_record>& list) noexcept;
  template <class F>
  void for_each(F f) const {
    if (sorted_ == nullptr) {
      list_.for_each(f);
      return;
    }
    for (std::size_t i = 0; i < list_.size(); ++i) f(*sorted_[i]);
  }

 private:
  const arena_list<g_record>& list_;
  const g_record** sorted_;
};

// Overwrites what calls have left below the caller's frame. Who has walked the stacks of others has
// left their addresses there, which the leak finder would take for something that somebody knows.
void wipe_stack() noexcept;

// Where a trace is written to.
struct text_sink {
  void (*put)(void* to, const char* text, std::size_t n);
  void* to;
  const text_sink& operator<<(std::string_view s) const {
    put(to, s.data(), s.size());
    return *this;
  }
  const text_sink& operator<<(std::uint64_t v) const;
};

extern bool show_runtime_frames;  // set before anything is written (report.cc)
void write(const text_sink& out, const trace& t, symbols& names);
void write(const text_sink& out, const g_record& g, symbols& names);

}  // namespace weft::rt
