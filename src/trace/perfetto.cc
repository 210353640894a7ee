// SPDX-License-Identifier: Apache-2.0
// See perfetto.h. Field numbers are those of Perfetto's trace_packet.proto and what it includes.
// Long because it is one format: the encoding, and for each kind of event what it becomes there.
#include "trace/perfetto.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <unistd.h>

#include "core/status.h"
#include "os/memory.h"

namespace weft::rt {
namespace {

// TracePacket
constexpr unsigned f_clock_snapshot = 6, f_timestamp = 8, f_sequence = 10, f_track_event = 11,
                   f_interned = 12, f_flags = 13, f_defaults = 59, f_track = 60;
constexpr unsigned flag_cleared = 1, flag_needs_state = 2;
constexpr unsigned incremental_clock = 64, monotonic_clock = 3, boot_clock = 6;

enum : std::uint64_t { slice_begin = 1, slice_end = 2, instant = 3 };

// The tables that every sequence begins with. 0: none.
enum name : std::uint8_t {
  n_none,
  n_ready,
  n_go,
  n_steal,
  n_hand_off,
  n_preempt,
  n_timers,
  n_net,
  n_procs,
  n_stop_world,
  n_start_world,
  n_run_end,
  n_lost,
  n_status,
  n_sync,
  n_sync_end,
  n_idle,
  n_polling,
  n_spinning,
  n_waits_for_p,
  n_log,
  n_count,
};
constexpr std::string_view names[n_count] = {"",
                                             "ready",
                                             "go",
                                             "steal",
                                             "hand-off",
                                             "preempt",
                                             "timers",
                                             "net",
                                             "procs",
                                             "stop the world",
                                             "start the world",
                                             "run ends",
                                             "lost",
                                             "status",
                                             "sync",
                                             "sync end",
                                             "idle",
                                             "polling",
                                             "spinning",
                                             "waits for a P",
                                             "log"};
enum arg : std::uint8_t {
  a_none,
  a_g,
  a_to,
  a_why,
  a_by,
  a_p,
  a_m,
  a_n,
  a_from,
  a_stack,
  a_text,
  a_since,
  a_count
};
constexpr std::string_view args[a_count] = {"",  "g", "to",   "why",   "by",   "p",
                                            "m", "n", "from", "stack", "text", "since"};
constexpr std::string_view states[] = {"idle", "runnable", "running", "syscall", "waiting", "dead"};
constexpr std::uint64_t first_reason = 8, first_stack = 64;
constexpr unsigned reasons = static_cast<unsigned>(wait_reason::io_wait) + 1;

// Tracks.
constexpr std::uint64_t t_process = 1, t_ps = 2, t_ms = 3, t_gs = 4, t_syncs = 5, t_p = 1024,
                        t_m = 1U << 16, t_g = 1ULL << 32;

constexpr std::size_t g_slots = 4096, stack_slots = 4096;

std::int64_t clock_ns(clockid_t c) noexcept {
  timespec ts{};
  ::clock_gettime(c, &ts);
  return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

std::uint64_t hash_of(const std::uint64_t* w, std::uint64_t n) noexcept {
  std::uint64_t h = 0x9e3779b97f4a7c15ULL;
  for (std::uint64_t i = 0; i < n; ++i) h = (h ^ w[i]) * 0xff51afd7ed558ccdULL, h ^= h >> 32;
  return h;
}

std::string_view name_in(const std::uint64_t* words) noexcept {
  const char* s = reinterpret_cast<const char*>(words);
  return {s, ::strnlen(s, name_words * sizeof *words)};
}

}  // namespace

// A protobuf message that is being written. What does not fit is left out: only texts can be long,
// and they are cut before.
class perfetto_file::message {
 public:
  void number(unsigned field, std::uint64_t v) noexcept {
    if (n_ + 16 > sizeof b_) return;
    varint(field << 3);
    varint(v);
  }
  void text(unsigned field, std::string_view s) noexcept {
    if (n_ + 16 + s.size() > sizeof b_) return;
    varint(field << 3 | 2);
    varint(s.size());
    std::memcpy(b_ + n_, s.data(), s.size());
    n_ += s.size();
  }
  void nested(unsigned field, const message& m) noexcept { text(field, m.bytes()); }
  void varint(std::uint64_t v) noexcept {
    for (; v >= 0x80; v >>= 7) b_[n_++] = static_cast<char>(v | 0x80);
    b_[n_++] = static_cast<char>(v);
  }
  std::string_view bytes() const noexcept { return {b_, n_}; }

 private:
  std::size_t n_ = 0;
  char b_[8000];
};

struct perfetto_file::event {
  struct argument {
    arg key = a_none;
    bool is_text = false;  // v is an iid of a string
    std::uint64_t v = 0;
  };
  std::uint64_t type = instant, track = 0;
  name iid = n_none;
  std::string_view text_name = {};
  argument a[6] = {};
  unsigned n = 0;
  std::string_view text = {};
  const std::uint64_t* stack = nullptr;  // a record

  event& with(arg k, std::uint64_t v) noexcept {
    a[n++] = {k, false, v};
    return *this;
  }
  event& with_state(arg k, trace_state s) noexcept {
    a[n++] = {k, true, static_cast<std::uint64_t>(s) + 1};
    return *this;
  }
  event& with_reason(unsigned why) noexcept {
    if (why != 0 && why < reasons) a[n++] = {a_why, true, first_reason + why};
    return *this;
  }
};

bool perfetto_file::open(int fd, const scale& s, describe_stack describe) noexcept {
  const std::size_t bytes = buffer_size + max_rings * sizeof *last_ + 2 * (max_rings / 8) +
                            (g_slots + stack_slots) * sizeof *known_gs_;
  if (buffer_ == nullptr) {
    const mapping m = map_memory(bytes);
    if (!m) return false;
    buffer_ = reinterpret_cast<char*>(m.addr);
    last_ = reinterpret_cast<std::int64_t*>(buffer_ + buffer_size);
    known_gs_ = reinterpret_cast<std::uint64_t*>(last_ + max_rings);
    known_stacks_ = known_gs_ + g_slots;
    known_ms_ = known_stacks_ + stack_slots;
    doing_ = known_ms_ + max_rings / 64;
  }
  fd_ = fd;
  error_ = 0;
  scale_ = s;
  describe_ = describe;
  synced_ = false;
  n_ = 0;
  std::memset(known_ps_, 0, sizeof known_ps_);

  message process, pd, packet;
  pd.number(1, static_cast<std::uint64_t>(::getpid()));
  pd.text(6, "weft");
  process.number(1, t_process);
  process.nested(3, pd);
  packet.number(f_sequence, common_ring + 1);
  packet.nested(f_track, process);
  append(packet);
  describe_track(t_ps, t_process, "Processors", 0, true);
  describe_track(t_ms, t_process, "Threads", 1, true);
  describe_track(t_gs, t_process, "Goroutines", 2, true);
  describe_track(t_syncs, t_process, "Syncs", 3, true);
  return true;
}

int perfetto_file::close() noexcept {
  flush();
  if (::close(fd_) != 0 && error_ == 0) error_ = errno;
  fd_ = -1;
  const std::size_t bytes = buffer_size + max_rings * sizeof *last_ + 2 * (max_rings / 8) +
                            (g_slots + stack_slots) * sizeof *known_gs_;
  unmap({reinterpret_cast<std::uintptr_t>(buffer_), bytes});
  buffer_ = nullptr;
  return error_;
}

void perfetto_file::flush() noexcept {
  const char* p = buffer_;
  while (n_ > 0) {
    const ssize_t k = error_ == 0 ? ::write(fd_, p, n_) : static_cast<ssize_t>(n_);
    if (k < 0) {
      if (errno != EINTR) error_ = errno;  // the rest of the trace goes nowhere
      continue;
    }
    p += k;
    n_ -= static_cast<std::size_t>(k);
  }
}

void perfetto_file::append(const message& packet) noexcept {
  const std::string_view b = packet.bytes();
  if (n_ + b.size() + 8 > buffer_size) flush();
  buffer_[n_++] = 1 << 3 | 2;
  std::size_t len = b.size();
  for (; len >= 0x80; len >>= 7) buffer_[n_++] = static_cast<char>(len | 0x80);
  buffer_[n_++] = static_cast<char>(len);
  std::memcpy(buffer_ + n_, b.data(), b.size());
  n_ += b.size();
}

// -- tracks and sequences

void perfetto_file::describe_track(std::uint64_t uuid, std::uint64_t parent, std::string_view name,
                                   std::uint64_t number, bool ranked) noexcept {
  message t, packet;
  t.number(1, uuid);
  t.text(2, name);
  t.number(5, parent);
  if (ranked) {
    t.number(11, 3);  // children in the order of their ranks
    t.number(12, number);
  }
  packet.number(f_sequence, common_ring + 1);
  packet.nested(f_track, t);
  append(packet);
}

namespace {

// "P12"
std::string_view numbered(char* to, std::string_view prefix, std::uint64_t v) noexcept {
  std::memcpy(to, prefix.data(), prefix.size());
  std::size_t n = prefix.size();
  char digits[20];
  std::size_t k = 0;
  do {
    digits[k++] = static_cast<char>('0' + v % 10);
    v /= 10;
  } while (v != 0);
  while (k != 0) to[n++] = digits[--k];
  return {to, n};
}

}  // namespace

void perfetto_file::need_p(std::uint64_t p) noexcept {
  if ((known_ps_[p / 64 % 16] >> (p % 64) & 1) != 0) return;
  known_ps_[p / 64 % 16] |= 1ULL << (p % 64);
  char text[32];
  describe_track(t_p + p, t_ps, numbered(text, "P", p), p, true);
}

void perfetto_file::need_m(std::uint64_t m) noexcept {
  if (m >= max_rings || (known_ms_[m / 64] >> (m % 64) & 1) != 0) return;
  known_ms_[m / 64] |= 1ULL << (m % 64);
  char text[32];
  describe_track(t_m + m, t_ms, numbered(text, "M", m), m, true);
}

void perfetto_file::need_g(std::uint64_t g) noexcept {
  std::uint64_t& slot = known_gs_[g % g_slots];
  if (slot == g + 1) return;
  slot = g + 1;
  char text[32];
  describe_track(t_g + g, t_gs, numbered(text, "G", g), g, false);
}

// The tables, and a clock that counts from the packet before.
void perfetto_file::introduce_ring(std::uint32_t ring, std::int64_t at) noexcept {
  last_[ring] = at;
  message interned, entry_, clocks, clock, defaults, packet;
  const auto table = [&interned](unsigned field, std::uint64_t iid, std::string_view text) {
    message entry;
    entry.number(1, iid);
    entry.text(2, text);
    interned.nested(field, entry);
  };
  for (unsigned i = 1; i < n_count; ++i) table(2, i, names[i]);
  for (unsigned i = 1; i < a_count; ++i) table(3, i, args[i]);
  for (unsigned i = 0; i < 6; ++i) table(29, i + 1, states[i]);
  for (unsigned i = 1; i < reasons; ++i)
    table(29, first_reason + i, to_string(static_cast<wait_reason>(i)));
  const auto reading = [&clocks](unsigned id, std::int64_t t, bool incremental) {
    message c;
    c.number(1, id);
    c.number(2, static_cast<std::uint64_t>(t));
    if (incremental) c.number(3, 1);
    clocks.nested(1, c);
  };
  reading(incremental_clock, at, true);
  reading(monotonic_clock, at, false);
  reading(boot_clock, at + clock_ns(CLOCK_BOOTTIME) - clock_ns(CLOCK_MONOTONIC), false);
  defaults.number(58, incremental_clock);
  message first;
  first.number(f_sequence, ring + 1);
  first.number(f_flags, flag_cleared);
  first.nested(f_clock_snapshot, clocks);
  first.nested(f_defaults, defaults);
  append(first);
  packet.number(f_sequence, ring + 1);
  packet.number(f_flags, flag_needs_state);
  packet.nested(f_interned, interned);
  append(packet);
}

std::uint64_t perfetto_file::here(std::uint32_t ring, std::uint32_t p) noexcept {
  if (ring == common_ring) return t_syncs;
  (void)p;
  need_m(ring - 1);
  return t_m + ring - 1;
}

// -- events

std::int64_t perfetto_file::time_of(std::uint64_t w0) const noexcept {
  __extension__ using wide = unsigned __int128;
  const auto ns = static_cast<wide>(w0 >> 8) * scale_.ns_per_count >> 32;
  return scale_.base_ns + static_cast<std::int64_t>(ns);
}

void perfetto_file::emit(std::uint32_t ring, std::int64_t at, const event& e) noexcept {
  if (last_[ring] == 0) introduce_ring(ring, at - 1);
  message te, packet;
  for (unsigned i = 0; i < e.n; ++i) {
    message a;
    a.number(1, e.a[i].key);
    a.number(e.a[i].is_text ? 17 : 3, e.a[i].v);
    te.nested(4, a);
  }
  if (!e.text.empty()) {
    message a;
    a.number(1, a_text);
    a.text(6, e.text);
    te.nested(4, a);
  }
  if (e.stack != nullptr && describe_ != nullptr) {
    const std::uint64_t h = hash_of(e.stack + 1, e.stack[1] + 1) % 0x7fffffff + first_stack;
    std::uint64_t& slot = known_stacks_[(h + ring) % stack_slots];
    const std::uint64_t key = h << 20 | ring;
    if (slot != key) {
      slot = key;
      message entry, interned;
      entry.number(1, h);
      entry.text(2, describe_(e.stack + 2, e.stack[1]).substr(0, 4000));
      interned.nested(29, entry);
      packet.nested(f_interned, interned);
    }
    message a;
    a.number(1, a_stack);
    a.number(17, h);
    te.nested(4, a);
  }
  te.number(9, e.type);
  if (e.iid != n_none) te.number(10, e.iid);
  te.number(11, e.track);
  if (!e.text_name.empty()) te.text(23, e.text_name);
  packet.number(f_timestamp, static_cast<std::uint64_t>(at - last_[ring]));
  last_[ring] = at;
  packet.number(f_sequence, ring + 1);
  packet.number(f_flags, flag_needs_state);
  packet.nested(f_track_event, te);
  append(packet);
}

void perfetto_file::begin_g(std::uint32_t ring, std::int64_t at, g_word g,
                            const std::uint64_t* name, bool back) noexcept {
  char text[64];
  std::string_view title = numbered(text, "G", g.goid());
  if (name != nullptr) {
    const std::string_view own = name_in(name);
    text[title.size()] = ' ';
    std::memcpy(text + title.size() + 1, own.data(), own.size());
    title = {text, title.size() + 1 + own.size()};
  }
  need_p(g.p());
  event e{.type = slice_begin, .track = t_p + g.p(), .text_name = title};
  if (back) e.with_state(a_from, trace_state::syscall);
  emit(ring, at, e);
}

void perfetto_file::goroutine(std::uint32_t ring, std::int64_t at, const std::uint64_t* w,
                              const std::uint64_t* stack) noexcept {
  const g_word g{w[1]};
  const std::uint64_t m_track = here(ring, g.p());
  char text[64];
  switch (static_cast<trace_kind>(w[0] & 0xff)) {
    case trace_kind::g_switch:
    case trace_kind::g_stop: {
      need_p(g.p());
      event e{.type = slice_end, .track = t_p + g.p(), .stack = stack};
      emit(ring, at, e.with(a_g, g.goid()).with_state(a_to, g.to()).with_reason(g.reason()));
      if (g.to() == trace_state::syscall)
        emit(ring, at + 1,
             event{.type = slice_begin,
                   .track = m_track,
                   .text_name = numbered(text, "syscall G", g.goid())});
      if (static_cast<trace_kind>(w[0] & 0xff) == trace_kind::g_switch)
        begin_g(ring, at + 1, g_word{w[2]}, nullptr, false);
      break;
    }
    case trace_kind::g_back: {  // from a system call
      event e{.type = slice_end, .track = m_track, .stack = stack};
      emit(ring, at, e.with(a_g, g.goid()).with_state(a_to, g.to()).with_reason(g.reason()));
      if (g.to() == trace_state::running) begin_g(ring, at + 1, g, nullptr, true);
      break;
    }
    case trace_kind::g_run:
      begin_g(ring, at, g, g.named() ? w + 2 : nullptr, false);
      break;
    case trace_kind::g_ready:
    case trace_kind::g_spawn: {
      const bool spawn = static_cast<trace_kind>(w[0] & 0xff) == trace_kind::g_spawn;
      event e{.track = m_track, .iid = spawn ? n_go : n_ready, .stack = stack};
      e.with(a_g, g.goid());
      if (spawn) e.with(a_by, w[2]);
      emit(ring, at, e);
      break;
    }
    default:
      break;
  }
}

// A picture: instants for the reader of the file; and the first one opens what is already going on.
void perfetto_file::status(std::uint32_t ring, std::int64_t at, const std::uint64_t* w) noexcept {
  char text[64];
  event e{.track = t_syncs, .iid = n_status};
  if (static_cast<trace_kind>(w[0] & 0xff) == trace_kind::p_status) {
    e.with(a_p, w[1]).with_state(a_to, w[2] != 0 ? trace_state::running : trace_state::none);
    if (w[2] != 0) e.with(a_m, w[2] - 1);
    emit(ring, at, e);
    if (synced_ || w[2] == 0) return;
    need_p(w[1]);
    emit(ring, at + 1,
         event{
             .type = slice_begin, .track = t_p + w[1], .text_name = numbered(text, "M", w[2] - 1)});
    return;
  }
  const g_word g{w[1]};
  if (g.named()) e.text = name_in(w + 3);
  e.with(a_g, g.goid()).with_state(a_to, g.to()).with_reason(g.reason());
  if (w[2] != 0) e.with(a_m, w[2] - 1);
  if (g.to() == trace_state::running) e.with(a_p, g.p());
  emit(ring, at, e);
  if (synced_) return;
  if (g.to() == trace_state::running) begin_g(ring, at + 1, g, g.named() ? w + 3 : nullptr, false);
  if (g.to() == trace_state::syscall && w[2] != 0) {
    need_m(w[2] - 1);
    emit(ring, at + 1,
         event{.type = slice_begin,
               .track = t_m + w[2] - 1,
               .text_name = numbered(text, "syscall G", g.goid())});
  }
}

void perfetto_file::other(std::uint32_t ring, std::int64_t at, const std::uint64_t* w,
                          const std::uint64_t* called_from) noexcept {
  using enum trace_kind;
  const std::uint64_t track = here(ring, 0);
  char text[64];
  event e{.track = track, .stack = called_from};
  const auto k = static_cast<trace_kind>(w[0] & 0xff);
  switch (k) {
    case p_start:
      need_p(w[1]);
      emit(ring, at,
           event{.type = slice_begin, .track = t_p + w[1], .text_name = numbered(text, "M", w[2])});
      return;
    case p_stop:
      need_p(w[1]);
      emit(ring, at, event{.type = slice_end, .track = t_p + w[1]});
      return;
    case p_taken: {
      need_p(w[1]);
      need_m(w[3]);
      if (w[2] != 0) {
        event out{.type = slice_end, .track = t_p + w[1]};
        emit(ring, at, out.with(a_g, w[2]).with_state(a_to, trace_state::syscall));
        emit(ring, at + 1,
             event{.type = slice_begin,
                   .track = t_m + w[3],
                   .text_name = numbered(text, "syscall G", w[2])});
      }
      emit(ring, at + 2, event{.type = slice_end, .track = t_p + w[1]});
      return;
    }
    case m_begin: {
      constexpr name what[] = {n_idle, n_polling, n_spinning, n_waits_for_p};
      doing_[ring / 64] |= 1ULL << (ring % 64);
      emit(ring, at, event{.type = slice_begin, .track = track, .iid = what[w[1] % 4]});
      return;
    }
    case m_end:
      if ((doing_[ring / 64] >> (ring % 64) & 1) == 0) return;  // begun before this file
      doing_[ring / 64] &= ~(1ULL << (ring % 64));
      emit(ring, at, event{.type = slice_end, .track = track});
      return;
    case region:
    case end_region:
    case log:
      need_g(w[1]);
      e.track = t_g + w[1];
      if (k != end_region) {
        const std::string_view said(reinterpret_cast<const char*>(w + 3), w[2]);
        (k == region ? e.text_name : e.text) = said;
      }
      e.type = k == region ? slice_begin : k == end_region ? slice_end : instant;
      e.iid = k == log ? n_log : n_none;
      break;
    case steal:
      e.iid = n_steal;
      e.with(a_p, w[1]).with(a_n, w[2]);
      break;
    case hand_off:
    case preempt:
      e.iid = k == hand_off ? n_hand_off : n_preempt;
      e.with(a_p, w[1]);
      break;
    case timers:
    case polled:
    case procs:
      e.iid = k == timers ? n_timers : k == polled ? n_net : n_procs;
      e.with(a_n, w[1]);
      break;
    case lost:
      e.iid = n_lost;
      e.with(a_n, w[1]).with(a_since, static_cast<std::uint64_t>(time_of(w[2] << 8)));
      break;
    case world:
      e.iid = w[1] != 0 ? n_stop_world : n_start_world;
      break;
    case trace_kind::run_end:
      e.iid = n_run_end;
      break;
    case sync_begin:
      e.iid = n_sync;
      e.with(a_n, w[1]);
      break;
    case sync_end:
      e.iid = n_sync_end;
      synced_ = true;
      break;
    default:
      return;
  }
  emit(ring, at, e);
}

void perfetto_file::put(std::uint32_t ring, const std::uint64_t* w,
                        const std::uint64_t* after) noexcept {
  if (ring >= max_rings) return;
  const std::int64_t at = time_of(w[0]);
  const auto k = static_cast<trace_kind>(w[0] & 0xff);
  const bool stacked =
      after != nullptr && static_cast<trace_kind>(after[0] & 0xff) == trace_kind::stack;
  if (k == trace_kind::stack) return;
  if (k == trace_kind::g_status || k == trace_kind::p_status) {
    status(ring, at, w);
  } else if (k <= trace_kind::g_spawn) {
    goroutine(ring, at, w, stacked ? after : nullptr);
  } else {
    other(ring, at, w, stacked ? after : nullptr);
  }
}

}  // namespace weft::rt
