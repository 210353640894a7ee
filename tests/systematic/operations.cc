// SPDX-License-Identifier: Apache-2.0
// What the seam's atomics, fences and futexes do: stand before the operation until the engine picks
// this thread, ask it which of the visible stores is seen, perform, and note it down. Outside
// threads() there is nothing to choose, and the value in memory is the newest.
//
// Runs on the fibers.
#include <cstring>
#include <string>

#include "os/futex.h"
#include "systematic/engine.h"
#include "systematic/memory.h"

namespace systematic {
namespace {

const char* name_of(order o) noexcept {
  switch (o) {
    case order::relaxed:
      return "relaxed";
    case order::consume:
    case order::acquire:
      return "acquire";
    case order::release:
      return "release";
    case order::acq_rel:
      return "acq_rel";
    case order::seq_cst:
      return "seq_cst";
  }
  return "?";
}

std::string place(where w) {
  const std::string file = w.file;
  return " (" + file.substr(file.rfind('/') + 1) + ":" + std::to_string(w.number) + ")";
}

std::string hex(std::uint64_t v) {
  if (v < 10000) return std::to_string(v);
  char b[20];
  std::snprintf(b, sizeof b, "%#llx", static_cast<unsigned long long>(v));
  return b;
}

void wrong_use(const char* what, where w) {
  if (what != nullptr) the_engine.fail_here(what + place(w));
}

// Stands before the operation, then checks that the atomic may be used.
int begin(op_kind k, const void* at, std::size_t size, order o, where w) {
  the_engine.stand_before({k, at, o, false, w});
  const int l = the_memory.find(at, size);
  wrong_use(the_memory.access(the_engine.current(), l), w);
  return l;
}

void end() noexcept { the_memory.tick(the_engine.current()); }

std::uint64_t direct(const void* at, std::size_t size) noexcept {
  std::uint64_t v = 0;
  std::memcpy(&v, at, size);
  return v;
}

std::uint64_t result_of(arithmetic how, std::uint64_t old, std::uint64_t v) noexcept {
  switch (how) {
    case arithmetic::exchange:
      return v;
    case arithmetic::add:
      return old + v;
    case arithmetic::sub:
      return old - v;
    case arithmetic::bit_and:
      return old & v;
    case arithmetic::bit_or:
      return old | v;
    case arithmetic::bit_xor:
      return old ^ v;
  }
  return v;
}

std::uint64_t cut(std::uint64_t v, std::size_t size) noexcept {
  return size == 8 ? v : v & ((1ULL << (8 * size)) - 1);
}

// Before and after threads(): alone.
void set_directly(void* at, std::size_t size, std::uint64_t v) noexcept {
  std::memcpy(at, &v, size);
  if (const int l = the_memory.known(at); l >= 0) the_memory.construct(-1, l, v);
}

std::string age(int seen, int newest) {
  return seen == newest ? "" : ", " + std::to_string(newest - seen) + " behind";
}

}  // namespace

std::uint64_t atomic_load(const void* at, std::size_t size, order o, where w) noexcept {
  if (!the_engine.on_fiber()) return direct(at, size);
  const checker_at_work here;
  const int t = the_engine.current();
  const int l = begin(op_kind::load, at, size, o, w);
  const int newest = the_memory.newest(l);
  const int first = the_memory.oldest_visible(t, l, o, the_engine.stale_limit());
  const int seen = newest - the_engine.choose(newest - first + 1);
  const std::uint64_t v = the_memory.load(t, l, seen, o);
  if (the_engine.noting())
    the_engine.note(the_engine.name_of(at) + ".load " + name_of(o) + " = " + hex(v) +
                    age(seen, newest) + place(w));
  end();
  return v;
}

void atomic_store(void* at, std::size_t size, std::uint64_t v, order o, where w) noexcept {
  if (!the_engine.on_fiber()) return set_directly(at, size, v);
  const checker_at_work here;
  const int l = begin(op_kind::store, at, size, o, w);
  the_memory.store(the_engine.current(), l, v, o);
  if (the_engine.noting())
    the_engine.note(the_engine.name_of(at) + ".store " + hex(v) + " " + name_of(o) + place(w));
  end();
}

std::uint64_t atomic_modify(void* at, std::size_t size, arithmetic how, std::uint64_t v, order o,
                            where w) noexcept {
  if (!the_engine.on_fiber()) {
    const std::uint64_t old = direct(at, size);
    set_directly(at, size, cut(result_of(how, old, v), size));
    return old;
  }
  const checker_at_work here;
  const int l = begin(op_kind::modify, at, size, o, w);
  const std::uint64_t old = the_memory[l].stores.back().value;
  const std::uint64_t next = cut(result_of(how, old, v), size);
  the_memory.modify(the_engine.current(), l, next, o);
  if (the_engine.noting())
    the_engine.note(the_engine.name_of(at) + " " + hex(old) + " -> " + hex(next) + " " +
                    name_of(o) + place(w));
  end();
  return old;
}

bool atomic_compare_exchange(void* at, std::size_t size, std::uint64_t& expected,
                             std::uint64_t desired, bool weak, order success, order failure,
                             where w) noexcept {
  if (!the_engine.on_fiber()) {
    const std::uint64_t old = direct(at, size);
    if (old == expected) {
      set_directly(at, size, desired);
      return true;
    }
    expected = old;
    return false;
  }
  const checker_at_work here;
  const int t = the_engine.current();
  const int l = begin(op_kind::modify, at, size, success, w);
  const int newest = the_memory.newest(l);
  // What it may see, the newest first; an old store with the value it expects would be no failure.
  int seen[64];
  int n = 0;
  seen[n++] = newest;
  const auto& stores = the_memory[l].stores;
  const int first = the_memory.oldest_visible(t, l, failure, the_engine.stale_limit());
  for (int i = newest - 1; i >= first && n < 62; --i) {
    if (stores[static_cast<unsigned>(i)].value != expected) seen[n++] = i;
  }
  const bool may_succeed = stores.back().value == expected;
  if (weak && may_succeed && the_engine.self().spurious > 0) seen[n++] = -1;
  const int which = seen[the_engine.choose(n)];
  if (which == newest && may_succeed) {
    the_memory.modify(t, l, desired, success);
    if (the_engine.noting())
      the_engine.note(the_engine.name_of(at) + " " + hex(expected) + " -> " + hex(desired) + " " +
                      name_of(success) + place(w));
    end();
    return true;
  }
  if (which < 0) --the_engine.self().spurious;
  const int loaded = which < 0 ? newest : which;
  const std::uint64_t e = expected;
  expected = the_memory.load(t, l, loaded, failure);
  if (the_engine.noting())
    the_engine.note(the_engine.name_of(at) + " " + hex(e) + " -> " + hex(desired) + " fails " +
                    name_of(failure) + ": " + hex(expected) + age(loaded, newest) +
                    (which < 0 ? ", for nothing" : "") + place(w));
  end();
  return false;
}

void atomic_begins(void* at, std::size_t size, std::uint64_t v) noexcept {
  const checker_at_work here;
  if (!the_engine.on_fiber()) {
    if (const int l = the_memory.known(at); l >= 0) the_memory.construct(-1, l, v);
    return;
  }
  the_memory.construct(the_engine.current(), the_memory.find(at, size), v);
}

void atomic_ends(void* at) noexcept {
  const checker_at_work here;
  const int l = the_memory.known(at);
  if (l < 0) return;
  if (const char* wrong = the_memory.destroy(the_engine.current(), l); wrong != nullptr)
    the_engine.fail_here(wrong + (": " + the_engine.name_of(at)));
}

void fence(order o, where w) noexcept {
  if (!the_engine.on_fiber()) return;
  const checker_at_work here;
  the_engine.stand_before({op_kind::fence, nullptr, o, false, w});
  the_memory.fence(the_engine.current(), o);
  if (the_engine.noting()) the_engine.note(std::string("fence ") + name_of(o) + place(w));
  end();
}

void relax(where w) noexcept {
  if (!the_engine.on_fiber()) return;
  const checker_at_work here;
  const int t = the_engine.current();
  if (the_memory.thread(t).looked_at.empty()) return;
  the_engine.stand_before({op_kind::relax, nullptr, order::relaxed, false, w});
  const bool changed = the_memory.can_relax(t);
  if (!changed || (the_engine.self().spins > 0 && the_engine.choose(2) == 1)) {
    --the_engine.self().spins;
    the_memory.thread(t).looked_at.clear();
  } else {
    the_memory.relax(t);
  }
  if (the_engine.noting()) the_engine.note("spins" + place(w));
}

bool futex_wait(void* word, std::uint32_t expect, bool has_deadline, where w) noexcept {
  if (!the_engine.on_fiber()) fail("futex_wait outside threads()");
  const checker_at_work here;
  const int t = the_engine.current();
  const int l = begin(op_kind::futex_wait, word, sizeof expect, order::relaxed, w);
  const bool asleep = the_memory[l].stores.back().value == expect;
  if (!asleep) {
    // The kernel has compared with the newest value: so has its caller.
    the_memory.load(t, l, the_memory.newest(l), order::relaxed);
    if (the_engine.noting())
      the_engine.note(the_engine.name_of(word) + " changed: no sleep" + place(w));
    end();
    return true;
  }
  if (the_engine.self().spurious > 0 && the_engine.choose(2) == 1) {
    --the_engine.self().spurious;
    if (the_engine.noting()) the_engine.note("futex_wait comes back for nothing" + place(w));
    return true;
  }
  if (the_engine.noting()) the_engine.note("sleeps on " + the_engine.name_of(word) + place(w));
  the_engine.sleep({op_kind::futex_sleep, word, order::relaxed, has_deadline, w});
  const bool timed_out = the_engine.self().next.kind == op_kind::futex_sleep;
  if (the_engine.noting()) the_engine.note(timed_out ? "its time is up" : "woken");
  end();
  return !timed_out;
}

void futex_wake(void* word, int n, where w) noexcept {
  if (!the_engine.on_fiber()) return;
  const checker_at_work here;
  the_engine.stand_before({op_kind::futex_wake, word, order::relaxed, false, w});
  the_engine.wake_sleepers(word, n);
  if (the_engine.noting())
    the_engine.note("wakes " + std::to_string(n) + " of " + the_engine.name_of(word) + place(w));
}

void gate::open() noexcept {
  const checker_at_work here;
  if (the_engine.on_fiber()) {
    the_engine.stand_before({op_kind::gate_open, this, order::release, false, where::current()});
    the_engine.gates[this].open(the_memory.thread(the_engine.current()).now);
    the_engine.note("opens a gate");
    end();
  } else {
    the_engine.gates[this].open({});
  }
}

void gate::pass() noexcept {
  if (!the_engine.on_fiber()) return;
  const checker_at_work here;
  the_engine.stand_before({op_kind::gate_pass, this, order::acquire, false, where::current()});
  the_memory.thread(the_engine.current()).now.join(the_engine.gates[this].knows);
  the_engine.gates[this].is_open = false;
  the_engine.note("passes a gate");
  end();
}

}  // namespace systematic
