// SPDX-License-Identifier: Apache-2.0
// debug::trace: starting, stopping, and the thread that reads the rings.
//
// The writer is a thread of its own, made with the first trace. It turns records into packets and
// writes them every 20 ms while a trace goes to a file; of a flight recorder it only drops what has
// become too old. Nobody else reads the rings, but the dump thread of a dying process, which first
// waits for the writer to be between two passes.
//
// A file begins and ends with a picture of everything (sync_trace), and has another one wherever
// records were lost. The recorder has one a second, and rarer if they take long, and what it holds
// begins with the oldest one that is still followed by everything that came after it. It has more
// where so much happens that a second does not fit: only what is older than a picture can go, and
// what finds no room is lost, the last words of a dying process among it. A pass takes
// only records up to the moment at which it began: then nothing is in the file whose cause is not.
//
// Who asks the writer for something waits for it. It will wake him, so that is an errand
// (sched/waiter.h).
#include "debug/trace.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <system_error>
#include <unistd.h>

#include "debug/arena.h"
#include "debug/cfi.h"
#include "debug/symbols.h"
#include "os/thread.h"
#include "sched/procs.h"
#include "sched/tracing.h"
#include "sched/waiter.h"
#include "trace/perfetto.h"
#include "weft/debug.hpp"

namespace weft::rt {
namespace {

constexpr std::int64_t millisecond = 1'000'000, second = 1'000'000'000;
constexpr std::int64_t pass_every = 20 * millisecond, soon = millisecond, busy_chunks = 16;
constexpr std::size_t max_syncs = 64;
constexpr std::uint64_t all = UINT64_MAX >> 8;

enum class mode : std::uint32_t { off, file, recorder };
enum class wish : std::uint32_t { none, finish, write };

struct request {
  wish what = wish::none;
  int fd = -1;
  int error = 0;
  waiter who;
};

struct {
  parking_lock control;  // one call of start, stop, record, write at a time
  atomic<mode> now{mode::off};
  atomic<request*> asked{nullptr};
  note wake;
  bool thread = false;       // the writer exists; under control
  atomic<bool> busy{false};  // somebody reads the rings
  // -- set before `now`, read by the reader of the rings.
  int fd = -1;
  std::int64_t base_ns = 0;
  bool stacks = false;
  std::int64_t age = 0;
  std::size_t bytes = 0;
  char on_fatal[PATH_MAX] = {};
  // -- the reader's.
  perfetto_file file;
  struct {
    std::uint64_t stamp;
    std::int64_t at;
    std::uint64_t filled;   // chunks by then
  } syncs[max_syncs] = {};  // of the recorder, oldest first
  std::size_t nsyncs = 0;
  // When the last picture was taken, and the CPU time that it took. Not the time on the wall: of a
  // thread that the kernel kept waiting just then that would put off the next one for seconds.
  std::int64_t last_sync = 0, sync_cost = 0;
} constinit tracer;

// -- stacks

// One at a time uses a cache of rules; who finds it taken looks each one up.
struct {
  atomic<bool> taken{false};
  cfi_cache cache;
} constinit walkers[8];

// Kept over traces: what it has looked up is good as long as the process lives.
std::string_view describe(const std::uint64_t* pcs, std::size_t n) noexcept {
  alignas(arena) static char room[sizeof(arena)];
  alignas(symbols) static char names_room[sizeof(symbols)];
  static symbols* names = nullptr;
  static char text[4000];
  if (names == nullptr) {
    auto* memory = ::new (room) arena;
    names = ::new (names_room) symbols(*memory, false);
  }
  std::size_t used = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::string_view line = names->at(pcs[i], false).lines;
    if (used + line.size() > sizeof text) break;
    std::memcpy(text + used, line.data(), line.size());
    used += line.size();
  }
  return {text, used};
}

// -- reading the rings

struct window {
  std::uint64_t from = 0, to = all;
  bool consume = true;
};

// Returns how many chunks it has read.
std::int64_t read_ring(trace_ring& r, std::uint32_t id, perfetto_file& out,
                       const window& w) noexcept {
  std::int64_t chunks = 0;
  for (trace_chunk* c = r.head.load(memory_order_acquire); c != nullptr; ++chunks) {
    trace_chunk* next = c->next.load(memory_order_acquire);  // first: then the count is final
    const std::uint32_t n = c->n.load(memory_order_acquire);
    std::uint32_t i = c->from;
    while (i < n) {
      const std::uint64_t* at = c->words + i;
      const std::uint64_t stamp = at[0] >> 8;
      const unsigned k = record_words(at);
      if (stamp > w.to || k == 0) return chunks;
      i += k;
      if (stamp >= w.from) out.put(id, at, i < n ? c->words + i : nullptr);
      if (w.consume) c->from = i;
    }
    if (next == nullptr) return chunks;
    if (w.consume) {
      r.head.store(next, memory_order_relaxed);
      trace_give_back(c);
    }
    c = next;
  }
  return chunks;
}

template <class F>
void for_each_ring(F f) noexcept {
  f(traces.common, perfetto_file::common_ring);
  for (M* m = sched.allm.load(memory_order_acquire); m != nullptr; m = m->all_next)
    f(m->trace, m->id + 1);
}

std::int64_t read_all(perfetto_file& out, window w) noexcept {
  if (w.to == all && tracing()) w.to = trace_clock() - traces.base;
  std::int64_t chunks = 0;
  for_each_ring([&](trace_ring& r, std::uint32_t id) { chunks += read_ring(r, id, out, w); });
  out.flush();
  return chunks;
}

bool open_file(perfetto_file& f, int fd) noexcept {
  perfetto_file::scale s;
  s.base_ns = tracer.base_ns;
  const std::uint64_t counts = trace_clock() - traces.base;
  __extension__ using wide = unsigned __int128;
  const auto ns = static_cast<wide>(nanotime() - tracer.base_ns);
  if (counts != 0) s.ns_per_count = static_cast<std::uint64_t>((ns << 32) / counts);
  return f.open(fd, s, tracer.stacks ? describe : nullptr);
}

// -- the recorder

// What has been recorded since a picture was taken, one chunk more or less.
std::size_t bytes_since(std::uint64_t filled) noexcept {
  return (traces.filled.load(memory_order_relaxed) - filled + 1) * sizeof(trace_chunk);
}

// The oldest picture from which on everything is wanted, and fits.
std::size_t first_wanted(std::int64_t now) noexcept {
  std::size_t k = 0;
  while (k + 1 < tracer.nsyncs && (bytes_since(tracer.syncs[k].filled) > tracer.bytes ||
                                   tracer.syncs[k + 1].at <= now - tracer.age))
    ++k;
  return k;
}

void drop_old(std::int64_t now) noexcept {
  if (tracer.nsyncs == 0) return;
  const std::size_t k = first_wanted(now);
  tracer.nsyncs -= k;
  std::move(tracer.syncs + k, tracer.syncs + k + tracer.nsyncs, tracer.syncs);
  const std::uint64_t from = tracer.syncs[0].stamp;
  for_each_ring([&](trace_ring& r, std::uint32_t) {
    for (trace_chunk* c = r.head.load(memory_order_acquire); c != nullptr;) {
      trace_chunk* next = c->next.load(memory_order_acquire);
      if (next == nullptr || next->first > from) return;
      r.head.store(next, memory_order_relaxed);
      trace_give_back(c);
      c = next;
    }
  });
}

void take_picture() noexcept {
  const errand e;  // who waits for the world meanwhile gets it from us, and is not deadlocked
  const stopped_world w;
  if (!tracing()) return;
  const std::int64_t began = thread_cpu_ns(thread_id());
  const std::uint64_t stamp = sync_trace();
  tracer.last_sync = nanotime();
  tracer.sync_cost = thread_cpu_ns(thread_id()) - began;
  if (tracer.nsyncs == max_syncs) {
    std::move(tracer.syncs + 1, tracer.syncs + tracer.nsyncs, tracer.syncs);
    --tracer.nsyncs;
  }
  tracer.syncs[tracer.nsyncs++] = {stamp, tracer.last_sync,
                                   traces.filled.load(memory_order_relaxed)};
}

bool picture_is_due(std::int64_t now) noexcept {
  if (!tracing()) return false;
  if (traces.gap.load(memory_order_relaxed)) return now - tracer.last_sync >= 20 * tracer.sync_cost;
  if (tracer.now.load(memory_order_relaxed) != mode::recorder) return false;
  const bool much =
      tracer.nsyncs != 0 && bytes_since(tracer.syncs[tracer.nsyncs - 1].filled) > tracer.bytes / 4;
  return now - tracer.last_sync >=
         (much ? 20 * tracer.sync_cost : std::max(second, 200 * tracer.sync_cost));
}

// Everything from the oldest picture to one that is taken now, with the world going on.
int write_recording(int fd) noexcept {
  take_picture();
  perfetto_file& f = tracer.file;
  if (!open_file(f, fd)) return ENOMEM;
  read_all(f, {.from = tracer.syncs[0].stamp, .to = all, .consume = false});
  return f.close();
}

// -- the writer

void acquire_rings() noexcept {
  while (tracer.busy.exchange(true, memory_order_acquire)) ::usleep(1000);
}
void release_rings() noexcept { tracer.busy.store(false, memory_order_release); }

std::int64_t pass() noexcept {
  const mode m = tracer.now.load(memory_order_acquire);
  std::int64_t chunks = 0;
  if (m == mode::file) {
    if (!tracer.file.is_open() && !open_file(tracer.file, tracer.fd)) return 0;
    chunks = read_all(tracer.file, {});
  } else if (m == mode::recorder) {
    drop_old(nanotime());
  }
  return chunks;
}

void answer(request* q) noexcept {
  if (q->what == wish::write) {
    q->error = write_recording(q->fd);
  } else {
    if (tracer.now.load(memory_order_relaxed) == mode::file)
      q->error = tracer.file.is_open() ? tracer.file.close() : ENOMEM;
    tracer.now.store(mode::off, memory_order_relaxed);
  }
  q->who.wake();
}

void writer_main(void*) noexcept {
  for (;;) {
    tracer.wake.clear();
    // The looks come after the clear, as in service_main (sched/timers.cc): else it could wipe out
    // the wake-up of one whose request, or whose start of a trace, they have not seen.
    fence(memory_order_seq_cst);
    request* q = tracer.asked.exchange(nullptr, memory_order_acq_rel);  // with ask
    if (q == nullptr && tracer.now.load(memory_order_acquire) == mode::off) {
      tracer.wake.sleep();
      continue;
    }
    acquire_rings();
    const std::int64_t chunks = pass();
    if (q != nullptr) answer(q);
    release_rings();
    if (q != nullptr) {
      end_errand();  // and looks: the one that asked may wait for ever by now
      continue;
    }
    const std::int64_t now = nanotime();
    const bool picture = picture_is_due(now);
    if (picture) take_picture();
    // The recorder drops what is older than a picture in its next pass: soon, if that was much.
    if (chunks < busy_chunks) tracer.wake.sleep_until(now + (picture ? soon : pass_every));
  }
}

// Until the writer has done it.
void ask(request& q) {
  begin_errand();
  q.who.wait(
      [](void*, void* arg) {
        tracer.asked.store(static_cast<request*>(arg), memory_order_release);  // with writer_main
        tracer.wake.wake();
      },
      &q, wait_reason::internal);
}

class control {
 public:
  control() { tracer.control.lock(wait_reason::internal); }
  ~control() { tracer.control.unlock(); }
  control(const control&) = delete;
  control& operator=(const control&) = delete;
};

void refuse_second() {
  if (tracer.now.load(memory_order_relaxed) != mode::off)
    throw std::logic_error("debug::trace: there is a trace already");
}

void begin_trace(mode m, std::size_t buffer) {
  if (!tracer.thread) {
    if (const int err = start_service_thread(writer_main, nullptr, "weft-trace"); err != 0)
      throw std::system_error(err, std::generic_category(), "debug::trace: no thread to write it");
    tracer.thread = true;
  }
  tracer.nsyncs = 0;
  {
    const stopped_world w;
    tracer.base_ns = nanotime();
    const std::int64_t began = thread_cpu_ns(thread_id());
    start_tracing(std::max<std::size_t>(buffer / sizeof(trace_chunk), 16), tracer.stacks);
    tracer.last_sync = nanotime();
    tracer.sync_cost = thread_cpu_ns(thread_id()) - began;
    tracer.syncs[tracer.nsyncs++] = {0, tracer.last_sync, traces.filled.load(memory_order_relaxed)};
  }
  tracer.now.store(m, memory_order_release);  // with the writer
  tracer.wake.wake();
}

// Not inline: the address of errno must not be kept over a wait.
[[gnu::noinline]] int create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    throw std::system_error(errno, std::generic_category(), "debug::trace: cannot write " + path);
  return fd;
}

}  // namespace

WEFT_READS_STACKS unsigned trace_walk(std::uint64_t* pcs, unsigned most) noexcept {
  const M* m = current_m();
  const G* g = m != nullptr ? m->curg : nullptr;
  if (g == nullptr) return 0;
  const registers here = registers_here();
  if (here.sp() < g->stk.lo || here.sp() >= g->stk.hi) return 0;  // on a signal stack, or g0
  auto& mine = walkers[m->id % std::size(walkers)];
  const bool own = !mine.taken.exchange(true, memory_order_acquire);
  stack_walk w(here, here.sp(), g->stk.hi, false, own ? &mine.cache : nullptr);
  unsigned n = 0;
  do {
    pcs[n++] = w.pc();
  } while (n < most && w.up());
  if (own) mine.taken.store(false, memory_order_release);
  return n;
}

// Waits a while for the writer: it may be in the middle of a packet.
void flush_trace_on_fatal() noexcept {
  const mode m = tracer.now.load(memory_order_acquire);
  if (m == mode::off) return;
  for (int i = 0; tracer.busy.exchange(true, memory_order_acquire); ++i) {
    if (i == 1000) return;
    ::usleep(1000);
  }
  if (m == mode::file) {
    if (!tracer.file.is_open() && !open_file(tracer.file, tracer.fd)) return;
    read_all(tracer.file, {});
  } else if (tracer.on_fatal[0] != '\0' && !tracer.file.is_open()) {
    const int fd = ::open(tracer.on_fatal, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || !open_file(tracer.file, fd)) return;
    read_all(tracer.file, {.from = tracer.syncs[0].stamp, .to = all, .consume = false});
  }
}

}  // namespace weft::rt

namespace weft::debug::trace {

using namespace rt;

void start(const std::string& path, const options& o) {
  const control c;
  refuse_second();
  tracer.fd = create(path);
  tracer.stacks = o.stacks;
  try {
    begin_trace(mode::file, o.buffer);
  } catch (...) {
    ::close(tracer.fd);
    throw;
  }
}

void record(const recorder_options& o) {
  const control c;
  refuse_second();
  tracer.stacks = o.stacks;
  tracer.age = o.age.count();
  tracer.bytes = o.bytes;
  if (o.on_fatal.size() >= sizeof tracer.on_fatal)
    throw std::system_error(ENAMETOOLONG, std::generic_category(), "debug::trace::record");
  o.on_fatal.copy(tracer.on_fatal, o.on_fatal.size());
  tracer.on_fatal[o.on_fatal.size()] = '\0';
  // Twice: what is kept, and what is being recorded while the oldest is about to go. And what may
  // come between two passes, even if little is kept.
  begin_trace(mode::recorder, 2 * o.bytes + 512 * sizeof(trace_chunk));
}

void write(const std::string& path) {
  const control c;
  if (tracer.now.load(memory_order_relaxed) != mode::recorder)
    throw std::logic_error("debug::trace::write: the recorder is not on");
  request q;
  q.what = wish::write;
  q.fd = create(path);
  ask(q);
  if (q.error != 0)
    throw std::system_error(q.error, std::generic_category(), "debug::trace: writing " + path);
}

void stop() {
  const control c;
  if (tracer.now.load(memory_order_relaxed) == mode::off) return;
  {
    const stopped_world w;
    stop_tracing();
  }
  request q;
  q.what = wish::finish;
  ask(q);
  if (q.error != 0)
    throw std::system_error(q.error, std::generic_category(), "debug::trace: writing the file");
}

bool enabled() noexcept { return tracing(); }

region::region(std::string_view name) noexcept : on_(trace_text(trace_kind::region, name)) {}
region::~region() {
  if (on_) trace_text(trace_kind::end_region, {});
}
void log(std::string_view text) noexcept { trace_text(trace_kind::log, text); }

}  // namespace weft::debug::trace
