// SPDX-License-Identifier: Apache-2.0
// Ms: how a thread gets a P, sleeps without one, is started again; and the thread-maker.
//
// An M that has no P and nothing to do sleeps on its note, on the idle list (M1: no P, no
// goroutine). Whoever has a P to give takes an M off the list, writes the P into nextp and wakes
// it. If there is none, the thread-maker makes one: a thread of its own that only ever calls
// pthread_create, because that takes malloc's and the loader's locks, which a goroutine stopped in
// the middle of malloc may hold (DESIGN 4.1), and because a thread that user code has changed
// (namespace, mask) must not be cloned. A thread that does not exist yet is never counted as
// spinning, and the P that it is made for is only promised: making it may have to wait for a lock
// of one that waits for a P itself, which then takes the promised one (take_promised_p). When it
// comes, it counts (begin). The maker makes the timers' thread too (have_timers_made).
//
// While goroutines wait for descriptors one idle M sleeps in the poller instead (netpoll.h). It is
// on no list there, so nobody brings it a P: it takes one itself when something is ready or a timer
// is due, and goes on the list when there is none to be had.
//
// Runs on g0 or on a goroutine's stack (wake); takes the scheduler lock. Long because making,
// waking and resting a thread are one protocol: each part is read beside the others.
#include <utility>

#include "base/chaos.h"
#include "base/print.h"
#include "os/thread.h"
#include "sched/netpoll.h"
#include "sched/sched.h"
#include "sched/timers.h"
#include "sched/tracing.h"

namespace weft::rt {
namespace {

struct maker_state {
  mutex lock{lock_rank::maker};
  M* requests = nullptr;       // by make_next
  P* promised = nullptr;       // Ps for threads that do not exist yet; by idle_next
  std::uint32_t promises = 0;  // so many
  std::uint32_t coming = 0;    // threads asked for that have not come, spares not counted
  M* free = nullptr;           // Ms whose threads have ended; by make_next
  std::uint32_t ids = 0;
  void (*timers)(void*) = nullptr;  // the timers' thread is asked for, and is this

  P* take_promised() noexcept {  // under lock
    P* p = promised;
    if (p != nullptr) {
      promised = p->idle_next;
      p->idle_next = nullptr;
      --promises;
    }
    return p;
  }
  atomic<std::uint32_t> posted{0};
};
constinit maker_state maker;
constinit atomic<bool> maker_works{false};
constinit atomic<std::uint32_t> spares_coming{0};
constinit atomic<std::int64_t> spare_asked{0};  // when, or when the last of those to come has come
constexpr std::int64_t spare_patience = 1'000'000;

void spare_came() noexcept {
  spare_asked.store(nanotime(), memory_order_relaxed);
  spares_coming.fetch_sub(1, memory_order_relaxed);
}
constinit slab<M> ms;     // under maker.lock
M* counted_m() noexcept;  // a cell for one that is in sched.mcount

// A new thread comes as a spinner. Whoever had it made gave its claim to one back (start_m), and
// relies on it as on a spinner: when it has found something it wakes the next, for there may be
// more than one thing, and if it finds nothing it takes a second look. Not counted only if there
// are spinners enough, who do that.
void begin(M* m) noexcept {
  // Ours, or another's who comes later. In one step with the count: see request_m.
  maker.lock.lock();
  if (!m->spare) --maker.coming;
  P* const promised = maker.take_promised();
  maker.lock.unlock();
  if (promised != nullptr) {
    acquire_p(m, promised);
    if (sched.idle.try_start_spinning(nprocs())) m->spinning.store(true, memory_order_relaxed);
    return;
  }
  if (m->spare) return;  // to be idle
  // One that waited in place has taken ours, and looks for nothing.
  sched.lock.lock();
  P* p = nullptr;
  if (!sched.stopping.load(memory_order_relaxed)) {
    p = take_idle_p();
    if (p != nullptr) {
      sched.idle.take_p(true);
    } else {
      sched.idle.leave_note();
    }
  }
  sched.lock.unlock();
  if (p == nullptr) return;
  m->spinning.store(true, memory_order_relaxed);
  acquire_p(m, p);
}

void m_thread(void* arg) {
  M* m = static_cast<M*>(arg);
  m->g0_top = stack_below();
  bind_thread(m);
  if (m->spare) spare_came();
  begin(m);
  worker_main(m);
}

// Its thread has ended, or never was.
void give_back(M* m) noexcept {
  maker.lock.lock();
  m->make_next = maker.free;
  maker.free = m;
  maker.lock.unlock();
  sched.mcount.fetch_sub(1, memory_order_relaxed);
}

// Without a spare the world goes on: those who are to be stopped compute until one can be made.
void cannot_start(M* m, int err) noexcept {
  if (m->spare) {
    give_back(m);
    spare_came();
    if (sched.idle.load().idle_ps == nprocs()) check_dead();  // it was counted as awake
    return;
  }
  no_new_thread(err);
}

void start_timers(void (*main)(void*)) noexcept {
  if (const int err = start_service_thread(main, nullptr, "weft-timers"); err != 0)
    no_new_thread(err);
}

void maker_thread(void*) {
  prefer_short_slices();
  for (;;) {
    maker.lock.lock();
    M* m = maker.requests;
    if (m != nullptr) maker.requests = m->make_next;
    auto* timers = std::exchange(maker.timers, nullptr);
    const std::uint32_t seen = maker.posted.load(memory_order_relaxed);
    maker.lock.unlock();
    if (timers != nullptr) start_timers(timers);
    if (m == nullptr) {
      futex_wait(maker.posted, seen);
      continue;
    }
    chaos::point("maker.make");
    if (const int err = start_thread(m_thread, m, "weft-m"); err != 0) cannot_start(m, err);
  }
}

// Under the maker's lock, which it releases.
void unlock_and_post() noexcept {
  maker.posted.store(maker.posted.load(memory_order_relaxed) + 1,
                     memory_order_release);  // with futex_wait's look
  maker.lock.unlock();
  futex_wake(maker.posted, 1);
}

// By the thread-maker. A spare has no P in prospect.
void have_made(M* m, bool spare) noexcept {
  m->spare = spare;
  maker.lock.lock();
  m->make_next = maker.requests;
  maker.requests = m;
  unlock_and_post();
}

// A thread for p. None is made if one is on its way that has lost its P to somebody: there are as
// many to come as Ps promised, and no more. (On a loaded machine a thread takes a while to come. A
// program that stopped the world all the time, each time taking the promised P back, asked for one
// more after each stop until there were 10 000.)
void request_m(P* p) noexcept {
  maker.lock.lock();
  p->idle_next = maker.promised;
  maker.promised = p;
  const bool enough = ++maker.promises <= maker.coming;
  if (!enough) ++maker.coming;
  maker.lock.unlock();
  if (!enough) have_made(new_m(), false);
}

}  // namespace

P* take_promised_p() noexcept {
  maker.lock.lock();
  P* p = maker.take_promised();
  maker.lock.unlock();
  return p;
}

bool p_is_promised() noexcept {
  maker.lock.lock();
  const bool any = maker.promised != nullptr;
  maker.lock.unlock();
  return any;
}

bool threads_are_out() noexcept {
  return sched.mcount.load(memory_order_relaxed) >= sched.max_threads.load(memory_order_relaxed);
}

void thread_exhaustion() noexcept {
  begin_fatal();
  printer(2) << "runtime: program exceeds " << sched.max_threads.load(memory_order_relaxed)
             << "-thread limit\nfatal error: thread exhaustion\n";
  end_fatal();
}

namespace {

// One more thread, unless the limit is so near that those who need one at once might find none.
bool count_spare(std::uint64_t room) noexcept {
  std::uint32_t n = sched.mcount.load(memory_order_relaxed);
  do {
    if (n + room >= sched.max_threads.load(memory_order_relaxed)) return false;
  } while (!sched.mcount.compare_exchange_weak(n, n + 1, memory_order_relaxed));
  return true;
}

// For those that nobody has asked for yet.
bool has_room_for_spares() noexcept {
  return sched.mcount.load(memory_order_relaxed) + nprocs() <
         sched.max_threads.load(memory_order_relaxed);
}

}  // namespace

// No more before all of them have come: sysmon asks again if it was not enough. At the limit there
// is none: what that means is sysmon's to say (watch_fuse).
void request_spares(std::uint32_t n) noexcept {
  std::uint32_t none = 0;
  if (n == 0 || !spares_coming.compare_exchange_strong(none, n, memory_order_relaxed)) return;
  spare_asked.store(nanotime(), memory_order_relaxed);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (!count_spare(i == 0 ? 0 : nprocs())) {
      spares_coming.fetch_sub(n - i, memory_order_relaxed);
      return;
    }
    have_made(counted_m(), true);
  }
}

// The maker itself may be waiting for a lock that a stopped thread holds: malloc's.
bool spare_is_stuck() noexcept {
  return spares_coming.load(memory_order_relaxed) != 0 &&
         nanotime() - spare_asked.load(memory_order_relaxed) >= spare_patience;
}

bool spare_will_come() noexcept {
  return spares_coming.load(memory_order_relaxed) == 0 ? !threads_are_out() : !spare_is_stuck();
}

M* new_m() noexcept {
  if (sched.mcount.fetch_add(1, memory_order_relaxed) >=
      sched.max_threads.load(memory_order_relaxed))
    thread_exhaustion();
  return counted_m();
}

namespace {

M* counted_m() noexcept {
  maker.lock.lock();
  M* m = maker.free;
  if (m != nullptr) {
    maker.free = m->make_next;
    m->make_next = nullptr;
    maker.lock.unlock();
    return m;  // in the list of all since its first life
  }
  m = ms.allocate();
  m->id = maker.ids++;
  maker.lock.unlock();
  M* head = sched.allm.load(memory_order_relaxed);
  do {
    m->all_next = head;
  } while (!sched.allm.compare_exchange_weak(head, m, memory_order_release,
                                             memory_order_relaxed));  // with readers' acquire
  return m;
}

}  // namespace

const void* stack_below() noexcept { return __builtin_frame_address(0); }

void bind_thread(M* m) noexcept {
  const pid_t tid = thread_id();
  forget_cpu_timer(m);  // sysmon may have made one for the last thread after it had gone
  m->tid.store(tid, memory_order_relaxed);
  m->rng = random(static_cast<std::uint64_t>(nanotime()) ^ (static_cast<std::uint64_t>(tid) << 32));
  m->signals.install();
  m->ts.bind();
  m->g0.fiber.adopt_thread();
  m->g0.m.store(m, memory_order_relaxed);
  set_current_m(m);
  thread_words* words = own_words();
  words->in_rt.store(1, memory_order_relaxed);  // on g0 we are inside (os/section.h)
  words->attention.store(0, memory_order_relaxed);
  words->lent.store(0, memory_order_relaxed);
  m->words.store(words, memory_order_release);  // with take_from_sleeper
  allow_preemption(&m->mask_before);
}

// All that bind_thread did: the thread may end, and the M be another's (m0: of the next run).
void unbind_thread(M* m) noexcept {
  forget_cpu_timer(m);
  m->tid.store(0, memory_order_relaxed);
  forget_words(m);
  restore_mask(m->mask_before);
  m->signals.restore();
  set_current_m(nullptr);
  own_words()->in_rt.store(0, memory_order_relaxed);
}

// The M is free for another thread. Nobody looks for it any more: it has no P, no goroutine, is in
// no list but that of all Ms; sysmon and the audit find it empty.
void end_m(M* m) noexcept {
  if (m->p != nullptr) hand_off(release_p(m));
  m->dying = false;
  m->handed = nullptr;
  unbind_thread(m);
  give_back(m);
}

// Once. By the thread-maker if there is one: the caller may have channels locked. Should it wait
// for malloc's lock here, its holder may need the very P of one who waits for such a channel.
void have_timers_made(void (*main)(void*)) noexcept {
  if (!maker_works.load(memory_order_acquire) || sched.forked) {  // with start_service_threads
    start_timers(main);
    return;
  }
  maker.lock.lock();
  maker.timers = main;
  unlock_and_post();
}

void start_service_threads() {
  static constinit atomic<bool> started{false};
  if (started.exchange(true, memory_order_acq_rel)) return;
  pthread_atfork(nullptr, nullptr, [] {
    sched.forked = true;  // the child has one thread, and it is not ours
    own_words()->attention.store(0, memory_order_relaxed);  // nor is anybody there to call it
  });
  int err = start_service_thread(maker_thread, nullptr, "weft-maker");
  if (err == 0) {
    maker_works.store(true, memory_order_release);
    err = start_service_thread([](void*) { sysmon_main(); }, nullptr, "weft-sysmon");
  }
  if (err != 0) no_new_thread(err);
}

// keeps P1, M1
void acquire_p(M* m, P* p) noexcept {
  WEFT_DEBUG_ASSERT(m->p == nullptr && p->m.load(memory_order_relaxed) == nullptr);
  m->p = p;
  m->strays.store(false, memory_order_relaxed);
  m->hold.store(hold_state::owned, memory_order_relaxed);  // `left` ends with the goroutine
  // Whoever looks at Ps without the lock finds the M made: with the acquire loads in sysmon.cc,
  // procs.cc, run.cc, report.cc and schedtrace.cc.
  p->m.store(m, memory_order_release);
  p->last_m = m;
  // A new owner is a new slice; sysmon's samples of the old one are void.
  p->schedtick.store(p->schedtick.load(memory_order_relaxed) + 1, memory_order_relaxed);
  p->status.store(p_status::running, memory_order_relaxed);
  // m0 runs nobody but main (DESIGN 4.3): by way of g0, whichever P it comes back with.
  if (m->is_m0 && m->locked_g == nullptr) p->preempt.store(preempt_leave_m0, memory_order_relaxed);
  trace_p_start(m, p);
}

P* release_p(M* m) noexcept {
  P* p = m->p;
  WEFT_DEBUG_ASSERT(p != nullptr && p->m.load(memory_order_relaxed) == m);
  trace_p_stop(m, p);
  m->p = nullptr;
  p->m.store(nullptr, memory_order_relaxed);
  p->status.store(p_status::idle, memory_order_relaxed);
  return p;
}

// keeps P2, P6
void put_idle_p(P* p) noexcept {
  p->idle_next = sched.idle_p_list;
  sched.idle_p_list = p;
  sched.idle_mask[p->id / 64].fetch_or(1ULL << (p->id % 64), memory_order_relaxed);
}

P* take_idle_p() noexcept {
  P* p = sched.idle_p_list;
  if (p == nullptr) return nullptr;
  sched.idle_p_list = p->idle_next;
  p->idle_next = nullptr;
  sched.idle_mask[p->id / 64].fetch_and(~(1ULL << (p->id % 64)), memory_order_relaxed);
  if (sched.sysmon_waits.load(memory_order_relaxed)) wake_sysmon();
  return p;
}

P* take_free_p() noexcept {
  if (sched.stopping.load(memory_order_relaxed)) return nullptr;
  P* p = take_idle_p();
  if (p == nullptr) return take_promised_p();
  sched.idle.take_p(false);
  return p;
}

// The M that p ran on last, if it is idle (its caches are warm and, after a stop of the world, its
// goroutine is p's runnext); else the one that went to sleep last.
M* take_idle_m(P* p) noexcept {
  M** at = &sched.idle_m_list;
  if (p->last_m != nullptr && p->last_m->on_idle_list) {
    while (*at != p->last_m) at = &(*at)->idle_next;
  }
  M* m = *at;
  if (m == nullptr) return nullptr;
  *at = m->idle_next;
  m->idle_next = nullptr;
  m->on_idle_list = false;
  --sched.nmidle;
  return m;
}

// The last idle M has gone, or there was none. Who computes is stopped only if somebody can take
// its P, and once every CPU computes a thread takes ten milliseconds to come: it is made now.
static void keep_a_spare() noexcept {
  if (sched.preempt.load(memory_order_relaxed) && has_room_for_spares()) request_spares(1);
}

start_result start_m(P* p, bool spinning) noexcept {
  if (sched.forked) fatal("weft used in the child of a fork: only exec is possible there");
  sched.lock.lock();
  chaos::point("start_m.idle");
  M* m = take_idle_m(p);
  const bool none_left = sched.nmidle == 0;
  // Before a new thread one that waits in place: making a thread takes locks of libc, which that
  // one may hold (DESIGN 4.1).
  M* kept = m == nullptr ? sched.kept.pop_front() : nullptr;
  sched.lock.unlock();
  if (m == nullptr) {
    if (spinning) sched.idle.stop_spinning();  // it does not look for work, or does not exist yet
    if (kept != nullptr) {
      give_p(kept, p);
      return start_result::in_place;
    }
    keep_a_spare();
    request_m(p);  // the maker takes the last request first
    return start_result::new_thread;
  }
  m->spinning.store(spinning, memory_order_relaxed);
  give_p(m, p);
  if (none_left) keep_a_spare();
  return start_result::idle_m;
}

void give_p(M* m, P* p) noexcept {
  m->nextp = p;
  chaos::point("start_m.give");
  m->park.wake();
}

namespace {

// The watcher's time has come: off the idle list with an idle P, if nobody was faster and there is
// one.
bool take_own_p(M* m) noexcept {
  sched.lock.lock();
  P* p = m->on_idle_list && !sched.stopping.load(memory_order_relaxed) ? take_idle_p() : nullptr;
  if (p == nullptr) {
    sched.lock.unlock();
    return false;
  }
  M** at = &sched.idle_m_list;
  while (*at != m) at = &(*at)->idle_next;
  *at = m->idle_next;
  m->idle_next = nullptr;
  m->on_idle_list = false;
  --sched.nmidle;
  sched.idle.take_p(true);
  sched.lock.unlock();
  m->spinning.store(true, memory_order_relaxed);
  acquire_p(m, p);
  return true;
}

// Among the idle Ms the one with the earliest deadline watches the timers; the others sleep without
// one.
//
// watch_until is the deadline of the watcher. Whoever goes to sleep last knows all timers: they can
// only be armed by a running M, and that M comes here before it sleeps. So it is enough that each
// one looks on its way to sleep. (Ps that compute on: sysmon's.)
std::int64_t claim_watch() noexcept {
  const std::int64_t t = earliest_timer();
  if (t == never) return never;
  std::int64_t w = sched.watch_until.load(memory_order_seq_cst);
  while (t < w) {
    if (sched.watch_until.compare_exchange_weak(w, t, memory_order_seq_cst)) return t;
  }
  return never;  // somebody watches who wakes in time
}

void end_watch(std::int64_t t) noexcept {
  sched.watch_until.compare_exchange_strong(t, never, memory_order_seq_cst);
}

// Sleeps in the poller if it is wanted there. True: m has a P and spins. False: it goes to sleep on
// its note.
//
// Somebody sits there while goroutines wait for descriptors and an M is idle. An M comes here when
// it has changed the idle word, and then reads the count of waiters; partner: wait_parked
// (fd_wait.cc). One that leaves without a P frees the place first and then reads the idle word: an
// M that went to sleep because the place was taken had made its P idle before. All of it is
// seq_cst; weaker fails as in idle.h.
bool sleep_in_poller(M* m) noexcept {
  while (poll_claim()) {
    chaos::point("poll.claimed");
    const std::int64_t t = claim_watch();
    trace_begin(m, m_doing::polling);
    sched.in_poller.store(1, memory_order_seq_cst);  // with check_dead; one at a time: poll_claim
    wake_queue q = poll_block(t);
    sched.in_poller.store(0, memory_order_seq_cst);
    trace_end(m);
    if (t != never) end_watch(t);
    chaos::point("poll.looked");
    const bool due = !q.empty() || (t != never && t <= nanotime());
    P* p = nullptr;
    if (due) {
      sched.lock.lock();
      if (!sched.stopping.load(memory_order_relaxed)) p = take_idle_p();
      if (p != nullptr) sched.idle.take_p(true);
      sched.lock.unlock();
    }
    if (p != nullptr) {
      m->spinning.store(true, memory_order_relaxed);
      acquire_p(m, p);
    }
    poll_wake(q);
    poll_unclaim();
    chaos::point("poll.leave");
    if (p != nullptr) return true;
    if (due && sched.idle.load().idle_ps == 0) return false;
  }
  return false;
}

}  // namespace

void put_idle_m(M* m) noexcept {
  WEFT_DEBUG_ASSERT(m->p == nullptr && !m->spinning.load(memory_order_relaxed));
  m->idle_next = sched.idle_m_list;
  sched.idle_m_list = m;
  m->on_idle_list = true;
  m->idle_since = nanotime();
  ++sched.nmidle;
  ++sched.rests;
}

void stop_m(M* m) noexcept {
  if (sleep_in_poller(m)) return;
  sched.lock.lock();
  put_idle_m(m);
  // Where there are other threads too, sysmon looks: counting them takes 20 µs.
  const bool last =
      sched.idle.load().idle_ps == nprocs() && !sched.suspect.load(memory_order_relaxed);
  sched.lock.unlock();
  chaos::point("stop_m.listed");
  if (last) check_dead();
  sleep_idle(m);
}

void sleep_idle(M* m) noexcept {
  for (;;) {
    const std::int64_t t = claim_watch();
    trace_begin(m, m_doing::idle);
    const bool woken = m->park.sleep_until(t == never ? -1 : t);
    trace_end(m);
    if (t != never) end_watch(t);
    if (woken) break;
    if (take_own_p(m)) return;
    // No P for us: all are busy and see to their timers, or the world is stopping. Or somebody has
    // just taken us off the list to give us one.
    if (sched.stopping.load(memory_order_seq_cst) || earliest_timer() <= nanotime()) {
      m->park.sleep();
      break;
    }
  }
  chaos::point("stop_m.woken");
  m->park.clear();
  P* p = m->nextp;
  m->nextp = nullptr;
  if (p != nullptr) acquire_p(m, p);  // null: let go (let_idle_go)
}

// Threads that have been idle for a minute end; as many as there are Ps stay.
void let_idle_go(std::int64_t now) noexcept {
  constexpr std::int64_t minute = 60'000'000'000;
  M* old = nullptr;
  sched.lock.lock();
  if (sched.nmidle > nprocs()) {
    M** at = &sched.idle_m_list;  // the last of the list has slept longest
    for (std::uint32_t i = 0; *at != nullptr && (i < nprocs() || now - (*at)->idle_since < minute);
         ++i)
      at = &(*at)->idle_next;
    old = std::exchange(*at, nullptr);
    for (M* m = old; m != nullptr; m = m->idle_next) {
      m->on_idle_list = false;
      m->dying = true;
      --sched.nmidle;
    }
  }
  sched.lock.unlock();
  while (old != nullptr) {
    M* m = std::exchange(old, old->idle_next);
    m->idle_next = nullptr;
    m->park.wake();
  }
}

void wake_slow() noexcept {
  for (;;) {
    if (sched.idle.claim_spinner() != idle_word::wake_result::start) {
      // Somebody waits for a P and there is none: sysmon should have a look at who has them.
      if (sched.sysmon_naps.load(memory_order_relaxed)) wake_sysmon();
      return;
    }
    chaos::point("wake.claimed");
    sched.lock.lock();
    P* p = take_idle_p();
    if (p == nullptr) {
      sched.idle.unclaim_spinner();
      sched.lock.unlock();
      return;
    }
    sched.idle.take_p(false);
    sched.lock.unlock();
    if (start_m(p, true) != start_result::in_place) return;
  }
}

void hand_off(P* p) noexcept {
  bump(p->count.handoffs);
  trace_event(trace_kind::hand_off, p->id);
  // Timers and descriptors need a watcher: an M that takes p, finds nothing and goes to sleep with
  // their deadline, in the poller.
  const bool needed = !p->rq.empty() || work_queued() ||
                      p->timers.earliest.load(memory_order_relaxed) != never || poller_wanted();
  if (needed && !p->orphan.load(memory_order_relaxed)) {
    start_m(p, false);
    return;
  }
  chaos::point("handoff.look");
  sched.lock.lock();
  if (p->orphan.load(memory_order_relaxed)) {  // as in give_up: its run is over
    sched.lock.unlock();
    return;
  }
  if (sched.stopping.load(memory_order_relaxed)) {
    p->status.store(p_status::stopped, memory_order_relaxed);
    if (--sched.stop_wait == 0) sched.stop_note.wake();
    sched.lock.unlock();
    return;
  }
  if (work_queued()) {
    sched.lock.unlock();
    start_m(p, false);
    return;
  }
  if (!sched.idle.give_up_p(false)) {  // a note: somebody must look
    sched.lock.unlock();
    if (start_m(p, true) == start_result::in_place) wake();
    return;
  }
  put_idle_p(p);
  sched.lock.unlock();
  chaos::point("handoff.park");
  // One who has begun to wait for a descriptor since, and found no P idle (idle.h, the waiter).
  if (poller_wanted()) wake();
}

}  // namespace weft::rt
