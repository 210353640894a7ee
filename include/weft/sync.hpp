// SPDX-License-Identifier: Apache-2.0
// Synchronisation: mutex, shared_mutex, condition_variable, wait_group, once, once_func,
// once_value, semaphore, latch, barrier. All of them block goroutines and plain threads alike, are
// constant-initialised, and may be destroyed as soon as the call that learnt of their last use has
// returned. Long because it is ten primitives, each with the standard's full set of members.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <weft/context.hpp>
#include <weft/detail/bubble.hpp>
#include <weft/detail/wait_list.hpp>
#include <weft/go.hpp>

namespace weft {

// Go's sync.Mutex with the names of std: Lockable and TimedLockable. Any goroutine or thread may
// unlock it. Unlocking an unlocked one is fatal.
class mutex {
 public:
  constexpr mutex() noexcept = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  void lock() {
    const std::uint32_t me = detail::lock_point();
    // Acquire: with unlock's release. See mutex.cc, X1: a bit that was clear is ours.
    if ((word_.fetch_or(locked, std::memory_order_acquire) & locked) != 0) [[unlikely]] {
      lock_slow(detail::no_deadline);
      return;
    }
    owner_.store(me, std::memory_order_relaxed);
  }
  bool try_lock() noexcept {
    if ((word_.load(std::memory_order_relaxed) & locked) != 0 ||
        (word_.fetch_or(locked, std::memory_order_acquire) & locked) != 0)
      return false;
    owner_.store(detail::lock_owner(), std::memory_order_relaxed);
    return true;
  }
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& d) {
    detail::preempt_point();
    return try_lock() || (d > d.zero() && lock_slow(detail::deadline_in(d)));
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& tp) {
    detail::preempt_point();
    return try_lock() || detail::before(tp, [this](std::int64_t t) { return lock_slow(t); });
  }
  void unlock() noexcept {
    owner_.store(0, std::memory_order_relaxed);
    std::uint32_t w = locked;
    // Release: with the acquire of the next one to lock. The last touch.
    if (!word_.compare_exchange_strong(w, 0, std::memory_order_release, std::memory_order_relaxed))
        [[unlikely]]
      unlock_slow(w);
  }

 private:
  struct impl;
  friend struct detail::lock_view;
  // Above them the run of the goroutine that has claimed `woken`, while it is set; 0: a thread's.
  static constexpr std::uint32_t locked = 1, woken = 2, starving = 4, waiters = 8, run_unit = 16;
  static constexpr bool wakes_nobody(std::uint32_t w) noexcept {
    return w == locked || (w & (locked | woken | starving)) == (locked | woken);
  }
  WEFT_API bool lock_slow(std::int64_t deadline);
  WEFT_API void unlock_slow(std::uint32_t w) noexcept;

  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::uint32_t> owner_{0};  // lock_point's; 0 while it is being locked or unlocked
  detail::wait_list queue_;
};

// A mutex that readers share: SharedLockable and TimedLockable. A waiting writer keeps new readers
// out; after a writer all readers that wait go first. Unlocking what is not locked is fatal.
class shared_mutex {
 public:
  constexpr shared_mutex() noexcept = default;
  shared_mutex(const shared_mutex&) = delete;
  shared_mutex& operator=(const shared_mutex&) = delete;

  void lock() {
    detail::preempt_point();
    if (!try_lock()) lock_slow(detail::no_deadline);
  }
  bool try_lock() noexcept {
    std::uint64_t w = 0;
    // Acquire: with the release of both unlocks.
    if (!word_.compare_exchange_strong(w, writer, std::memory_order_acquire,
                                       std::memory_order_relaxed))
      return false;
    owner_.store(detail::lock_owner(), std::memory_order_relaxed);
    return true;
  }
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& d) {
    detail::preempt_point();
    return try_lock() || (d > d.zero() && lock_slow(detail::deadline_in(d)));
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& tp) {
    detail::preempt_point();
    return try_lock() || detail::before(tp, [this](std::int64_t t) { return lock_slow(t); });
  }
  void unlock() noexcept {
    owner_.store(0, std::memory_order_relaxed);
    std::uint64_t w = writer;
    // Release: with the acquire of the next one to lock. The last touch.
    if (!word_.compare_exchange_strong(w, 0, std::memory_order_release, std::memory_order_relaxed))
      unlock_slow();
  }

  void lock_shared() {
    detail::preempt_point();
    std::uint64_t w;
    if (!read_at_once(w)) lock_shared_slow(detail::no_deadline);
  }
  bool try_lock_shared() noexcept {
    std::uint64_t w;
    // A writer that waits may be of a run that is over.
    return read_at_once(w) || ((w & writer) == 0 && try_lock_shared_slow());
  }
  template <class Rep, class Period>
  bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& d) {
    detail::preempt_point();
    return try_lock_shared() || (d > d.zero() && lock_shared_slow(detail::deadline_in(d)));
  }
  template <class Clock, class Duration>
  bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration>& tp) {
    detail::preempt_point();
    return try_lock_shared() ||
           detail::before(tp, [this](std::int64_t t) { return lock_shared_slow(t); });
  }
  void unlock_shared() noexcept {
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    while (w >= reader && !last_of_many(w)) {
      // Release: with the acquire of the writer that comes next. The last touch.
      if (word_.compare_exchange_weak(w, w - reader, std::memory_order_release,
                                      std::memory_order_relaxed))
        return;
    }
    unlock_shared_slow();
  }

 private:
  struct impl;
  friend struct detail::lock_view;
  static constexpr std::uint64_t writer = 1, waiters = 2, reader = 4;
  // The last reader, and somebody waits: it lets them in.
  static constexpr bool last_of_many(std::uint64_t w) noexcept {
    return (w & waiters) != 0 && w < 2 * reader;
  }
  // False: w is what is in the way.
  bool read_at_once(std::uint64_t& w) noexcept {
    w = word_.load(std::memory_order_relaxed);
    while ((w & (writer | waiters)) == 0) {
      if (word_.compare_exchange_weak(w, w + reader, std::memory_order_acquire,
                                      std::memory_order_relaxed))
        return true;
    }
    return false;
  }
  WEFT_API bool lock_slow(std::int64_t deadline);
  WEFT_API void unlock_slow() noexcept;
  WEFT_API bool try_lock_shared_slow() noexcept;
  WEFT_API bool lock_shared_slow(std::int64_t deadline);
  WEFT_API void unlock_shared_slow() noexcept;

  std::atomic<std::uint64_t> word_{0};  // readers inside, `waiters`, `writer`
  detail::wait_list readers_, writers_;
  std::atomic<std::uint32_t> owner_{0};  // the writer's lock_point; 0: readers, or on its way
};

namespace detail {
class memory_socket;  // src/net/memory.h
}  // namespace detail

// std::condition_variable over weft::mutex. notify_one wakes in order of arrival.
class condition_variable {
 public:
  constexpr condition_variable() noexcept = default;
  condition_variable(const condition_variable&) = delete;
  condition_variable& operator=(const condition_variable&) = delete;

  WEFT_API void notify_one() noexcept;
  WEFT_API void notify_all() noexcept;

  void wait(std::unique_lock<mutex>& lock) {
    wait_until_deadline(owned(lock), detail::no_deadline, nullptr);
  }
  template <class Pred>
  requires std::predicate<Pred&>
  void wait(std::unique_lock<mutex>& lock, Pred pred) {
    while (!pred()) wait(lock);
  }
  // Until pred holds or ctx is cancelled: what pred says then.
  template <class Pred>
  requires std::predicate<Pred&>
  bool wait(std::unique_lock<mutex>& lock, const context& ctx, Pred pred) {
    while (!pred()) {
      if (!wait_until_deadline(owned(lock), detail::no_deadline, &ctx)) return pred();
    }
    return true;
  }
  template <class Rep, class Period>
  std::cv_status wait_for(std::unique_lock<mutex>& lock,
                          const std::chrono::duration<Rep, Period>& d) {
    return status(wait_until_deadline(owned(lock), detail::deadline_in(d), nullptr));
  }
  template <class Rep, class Period, class Pred>
  requires std::predicate<Pred&>
  bool wait_for(std::unique_lock<mutex>& lock, const std::chrono::duration<Rep, Period>& d,
                Pred pred) {
    const std::int64_t deadline = detail::deadline_in(d);
    while (!pred()) {
      if (!wait_until_deadline(owned(lock), deadline, nullptr)) return pred();
    }
    return true;
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(std::unique_lock<mutex>& lock,
                            const std::chrono::time_point<Clock, Duration>& tp) {
    return status(detail::before(
        tp, [&](std::int64_t t) { return wait_until_deadline(owned(lock), t, nullptr); }));
  }
  template <class Clock, class Duration, class Pred>
  requires std::predicate<Pred&>
  bool wait_until(std::unique_lock<mutex>& lock, const std::chrono::time_point<Clock, Duration>& tp,
                  Pred pred) {
    while (!pred()) {
      if (wait_until(lock, tp) == std::cv_status::timeout) return pred();
    }
    return true;
  }

 private:
  struct impl;
  static mutex& owned(std::unique_lock<mutex>& lock) {
    if (!lock.owns_lock()) throw std::logic_error("weft::condition_variable: the lock is not held");
    return *lock.mutex();
  }
  static std::cv_status status(bool notified) noexcept {
    return notified ? std::cv_status::no_timeout : std::cv_status::timeout;
  }
  friend class detail::memory_socket;
  // Whether it was notified. ctx: or null. A caller that may not give way before m is unlocked says
  // so.
  enum class give_way : std::uint8_t { first, after_the_unlock };
  WEFT_API bool wait_until_deadline(mutex& m, std::int64_t deadline, const context* ctx,
                                    give_way g = give_way::first);

  std::atomic<bool> any_{false};  // somebody waits; changes under the queue's lock
  detail::wait_list queue_;
};

namespace detail {

// A counter, and those who wait until it is zero: wait_group and latch.
class zero_gate {
 public:
  constexpr explicit zero_gate(std::int64_t n = 0) noexcept : word_(n * unit) {}
  // False, and nothing has changed, if it would become negative, or larger than can be counted.
  WEFT_API bool add(std::int64_t n) noexcept;
  // A wait_group that is not zero belongs to the bubble that it is counted in, or to none.
  WEFT_API void tie() noexcept;
  bool was_tied() const noexcept { return tied_.load(std::memory_order_relaxed) != 0; }
  bool is_zero() const noexcept {
    // Acquire: with the release of the add that brought it to zero.
    return word_.load(std::memory_order_acquire) < unit;
  }
  // A latch's: takes n off and waits, touching nothing once those who wait may go on. False, and
  // nothing has changed, if it would become negative.
  WEFT_API bool arrive_and_wait(std::int64_t n);
  enum class as : std::uint8_t { wait_group, latch };
  void wait(as who) const {
    preempt_point();
    if (!is_zero()) wait_slow(who);
  }

 private:
  static constexpr std::int64_t unit = 2, waiters = 1;
  WEFT_API void wait_slow(as who) const;

  mutable std::atomic<std::int64_t> word_;  // the counter, and whether somebody waits
  mutable wait_list queue_;
  birthplace born_;
  // Of a wait_group: in which bubble it was counted up from zero. Changes under the queue's lock.
  std::atomic<std::uint32_t> tied_{0};
};

}  // namespace detail

// Go's sync.WaitGroup.
class wait_group {
 public:
  constexpr wait_group() noexcept = default;
  wait_group(const wait_group&) = delete;
  wait_group& operator=(const wait_group&) = delete;

  // Throws std::logic_error, and changes nothing, if the counter would become negative.
  void add(std::ptrdiff_t n = 1) {
    if (detail::any_bubble() || gate_.was_tied()) [[unlikely]]
      gate_.tie();
    if (!gate_.add(n)) throw std::logic_error("sync: negative WaitGroup counter");
  }
  void done() { add(-1); }
  void wait() { gate_.wait(detail::zero_gate::as::wait_group); }
  // Counts f in a goroutine of its own. An exception out of f ends the process, as for weft::go,
  // before wait returns; goexit counts as done.
  template <class F, class... A>
  requires std::invocable<std::decay_t<F>, std::decay_t<A>...> WEFT_STARTS void go(F&& f,
                                                                                   A&&... a) {
    using C = call<detail::closure<std::decay_t<F>, std::decay_t<A>...>>;
    if (detail::is_nil(f)) detail::go_of_nil();
    add(1);
    ticket t{this};
    detail::spawn<C>(this, std::forward<F>(f), std::forward<A>(a)...);
    t.wg = nullptr;
  }

 private:
  struct ticket {  // done, unless somebody else has taken that over
    wait_group* wg;
    ~ticket() {
      if (wg != nullptr) wg->done();
    }
  };
  template <class C>
  struct call {
    wait_group* wg;
    ticket last{nullptr};  // after fn is destroyed, so that what it holds is gone when wait returns
    C fn;
    template <class... A>
    explicit call(wait_group* w, A&&... a) : wg(w), fn(std::forward<A>(a)...) {}
    void operator()() {
      struct guard {  // no handler: the report wants the stack as it was at the throw
        call& c;
        bool returned = false;
        ~guard() {  // on goexit too, but not before a report
          if (returned || !detail::is_failing()) c.last.wg = c.wg;
        }
      } g{*this};
      fn();
      g.returned = true;
    }
  };
  detail::zero_gate gate_;
};

// std::call_once: the first call runs f, the others wait for it. If f throws, or calls goexit, it
// has not run: the next one does.
class once {
 public:
  constexpr once() noexcept = default;
  once(const once&) = delete;
  once& operator=(const once&) = delete;

  template <class F, class... A>
  requires std::invocable<F, A...>
  void call(F&& f, A&&... a) {
    detail::preempt_point();
    // Acquire: with finish's release.
    if (state_.load(std::memory_order_acquire) == done) return;
    if (!begin()) return;
    struct guard {
      once* o;
      bool ok = false;
      ~guard() { o->finish(ok); }
    } g{this};
    std::invoke(std::forward<F>(f), std::forward<A>(a)...);
    g.ok = true;
  }

 private:
  static constexpr std::uint32_t fresh = 0, running = 1, done = 2;
  WEFT_API bool begin();  // true: the caller runs it
  WEFT_API void finish(bool ok) noexcept;

  std::atomic<std::uint32_t> state_{fresh};
  detail::wait_list queue_;
};

namespace detail {

template <class R>
struct once_result {
  std::optional<R> value;
  template <class F>
  void run(F& f) {
    value.emplace(std::invoke(f));
  }
  bool ran() const noexcept { return value.has_value(); }
  const R& get() const noexcept { return *value; }
};
template <class R>
struct once_result<R&> {
  R* value = nullptr;
  template <class F>
  void run(F& f) {
    value = std::addressof(std::invoke(f));
  }
  bool ran() const noexcept { return value != nullptr; }
  R& get() const noexcept { return *value; }
};
template <>
struct once_result<void> {
  bool value = false;
  template <class F>
  void run(F& f) {
    std::invoke(f);
    value = true;
  }
  bool ran() const noexcept { return value; }
  void get() const noexcept {}
};

// What once_func and once_value return: a copyable handle on one run of f.
template <class F, class R>
class once_call {
 public:
  template <class F2>
  once_call(std::in_place_t, F2&& f)
      : s_(std::make_shared<state>(std::in_place, std::forward<F2>(f))) {}
  decltype(auto) operator()() const {
    s_->first.call([s = s_.get()] { s->run(); });
    if (s_->error) std::rethrow_exception(s_->error);
    if (!s_->result.ran()) throw goexited();
    return s_->result.get();
  }

 private:
  struct state {
    once first;
    std::optional<F> f;
    std::exception_ptr error;
    once_result<R> result;

    template <class F2>
    state(std::in_place_t, F2&& fn) : f(std::in_place, std::forward<F2>(fn)) {}
    void run() {
      if (!f) return;  // it has called goexit: not again
      struct release {
        std::optional<F>& f;
        ~release() { f.reset(); }
      } r{f};
      run_catching(error, [this] { result.run(*f); });
    }
  };
  std::shared_ptr<state> s_;
};

}  // namespace detail

// A function that runs f at its first call; what f threw is thrown at every call. f is destroyed
// after its run.
template <class F>
requires std::invocable < std::decay_t<F>
& > auto once_func(F&& f) {
  return detail::once_call<std::decay_t<F>, void>(std::in_place, std::forward<F>(f));
}
// The same with f's result, of which every call returns a reference.
template <class F>
requires std::invocable < std::decay_t<F>
& > auto once_value(F&& f) {
  return detail::once_call<std::decay_t<F>, std::invoke_result_t<std::decay_t<F>&>>(
      std::in_place, std::forward<F>(f));
}

// n permits, any number that a ptrdiff_t holds; first come, first served, whatever each asks for.
// One who asks for more than there will ever be waits.
class semaphore {
 public:
  constexpr explicit semaphore(std::ptrdiff_t n) : word_(checked(n) * unit) {}
  semaphore(const semaphore&) = delete;
  semaphore& operator=(const semaphore&) = delete;

  void acquire(std::ptrdiff_t n = 1) {
    detail::preempt_point();
    if (!try_acquire(n)) acquire_slow(n, detail::no_deadline, nullptr);
  }
  // ctx.err() if that came first; nothing has been taken then.
  [[nodiscard]] std::error_code acquire(const context& ctx, std::ptrdiff_t n = 1) {
    detail::preempt_point();
    if (const std::error_code e = ctx.err()) return e;
    if (try_acquire(n) || acquire_slow(n, detail::no_deadline, &ctx)) return {};
    return ctx.err();
  }
  bool try_acquire(std::ptrdiff_t n = 1) {
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    const std::uint64_t want = checked(n) * unit;
    while ((w & waiters) == 0 && w >= want) {
      // Acquire: with release's.
      if (word_.compare_exchange_weak(w, w - want, std::memory_order_acquire,
                                      std::memory_order_relaxed))
        return true;
    }
    // Those who wait may be of a run that is over.
    return w >= (want | waiters) && try_acquire_slow(n);
  }
  template <class Rep, class Period>
  bool try_acquire_for(const std::chrono::duration<Rep, Period>& d, std::ptrdiff_t n = 1) {
    detail::preempt_point();
    return try_acquire(n) || (d > d.zero() && acquire_slow(n, detail::deadline_in(d), nullptr));
  }
  template <class Clock, class Duration>
  bool try_acquire_until(const std::chrono::time_point<Clock, Duration>& tp, std::ptrdiff_t n = 1) {
    detail::preempt_point();
    return try_acquire(n) ||
           detail::before(tp, [this, n](std::int64_t t) { return acquire_slow(n, t, nullptr); });
  }
  // Throws std::overflow_error, and changes nothing, if it cannot count so many.
  void release(std::ptrdiff_t n = 1) {
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    const std::uint64_t more = checked(n) * unit;
    while ((w & waiters) == 0) {
      std::uint64_t next;
      if (__builtin_add_overflow(w, more, &next)) [[unlikely]]
        break;
      // Release: with the acquire of those who take them. The last touch.
      if (word_.compare_exchange_weak(w, next, std::memory_order_release,
                                      std::memory_order_relaxed))
        return;
    }
    release_slow(more);
  }

 private:
  struct impl;
  static constexpr std::uint64_t unit = 2, waiters = 1;  // so that PTRDIFF_MAX fits
  static constexpr std::uint64_t checked(std::ptrdiff_t n) {
    return n >= 0 ? static_cast<std::uint64_t>(n)
                  : throw std::invalid_argument("weft::semaphore: negative count");
  }
  WEFT_API bool try_acquire_slow(std::ptrdiff_t n) noexcept;
  WEFT_API bool acquire_slow(std::ptrdiff_t n, std::int64_t deadline, const context* ctx);
  WEFT_API void release_slow(std::uint64_t more);

  std::atomic<std::uint64_t> word_;  // permits, and whether somebody waits
  detail::wait_list queue_;
  detail::birthplace born_;
};

// std::latch.
class latch {
 public:
  static constexpr std::ptrdiff_t(max)() noexcept {
    return (std::numeric_limits<std::ptrdiff_t>::max)() / 2;
  }
  // Throws std::invalid_argument if expected is negative or more than max().
  constexpr explicit latch(std::ptrdiff_t expected) : gate_(checked(expected, (max)())) {}
  latch(const latch&) = delete;
  latch& operator=(const latch&) = delete;

  // Throws std::logic_error, and changes nothing, if fewer than n are expected.
  void count_down(std::ptrdiff_t n = 1) {
    if (!gate_.add(-checked(n))) throw std::logic_error("weft::latch: more than expected");
  }
  bool try_wait() const noexcept { return gate_.is_zero(); }
  void wait() const { gate_.wait(detail::zero_gate::as::latch); }
  void arrive_and_wait(std::ptrdiff_t n = 1) {
    if (!gate_.arrive_and_wait(checked(n)))
      throw std::logic_error("weft::latch: more than expected");
  }

 private:
  static constexpr std::ptrdiff_t checked(
      std::ptrdiff_t n, std::ptrdiff_t most = (std::numeric_limits<std::ptrdiff_t>::max)()) {
    if (n < 0) throw std::invalid_argument("weft::latch: negative count");
    return n <= most ? n : throw std::invalid_argument("weft::latch: count out of range");
  }
  detail::zero_gate gate_;
};

namespace detail {

// barrier without its completion function.
class barrier_base {
 protected:
  constexpr explicit barrier_base(std::ptrdiff_t n) : expected_(checked(n)), pending_(n) {}
  // Counts n arrivals, of which `dropped` do not come again; sets the phase they belong to. True:
  // the phase is full, and the caller completes it.
  WEFT_API bool arrive(std::ptrdiff_t n, std::ptrdiff_t dropped, std::uint64_t& phase);
  // One arrival. True: the same. False: it has waited for the next phase, and has not looked at the
  // barrier since: another one may have destroyed it.
  WEFT_API bool arrive_and_wait();
  WEFT_API void next_phase() noexcept;
  void wait_for(std::uint64_t phase) const {
    preempt_point();
    // Acquire: with next_phase's release.
    if (phase_.load(std::memory_order_acquire) == phase) wait_slow(phase);
  }

 private:
  static constexpr std::ptrdiff_t checked(std::ptrdiff_t n) {
    return n >= 0 ? n : throw std::invalid_argument("weft::barrier: negative count");
  }
  WEFT_API void wait_slow(std::uint64_t phase) const;

  // All under the queue's lock; phase_ is read outside too.
  std::atomic<std::uint64_t> phase_{0};
  std::ptrdiff_t expected_;
  std::ptrdiff_t pending_;
  mutable wait_list queue_;
  birthplace born_;
};

struct no_completion {
  constexpr void operator()() const noexcept {}
};

}  // namespace detail

// std::barrier. completion() runs in the last to arrive, before anybody goes on.
template <class CompletionFunction = detail::no_completion>
requires std::is_nothrow_invocable_v<CompletionFunction&>
class barrier : detail::barrier_base {
 public:
  class arrival_token {
   public:
    arrival_token(arrival_token&&) noexcept = default;
    arrival_token& operator=(arrival_token&&) noexcept = default;

   private:
    friend class barrier;
    explicit arrival_token(std::uint64_t p) noexcept : phase(p) {}
    std::uint64_t phase;
  };
  static constexpr std::ptrdiff_t(max)() noexcept {
    return (std::numeric_limits<std::ptrdiff_t>::max)();
  }
  constexpr explicit barrier(std::ptrdiff_t expected,
                             CompletionFunction completion = CompletionFunction())
      : barrier_base(expected), completion_(std::move(completion)) {}
  barrier(const barrier&) = delete;
  barrier& operator=(const barrier&) = delete;

  // Throws std::logic_error, and changes nothing, if fewer than n are expected.
  [[nodiscard]] arrival_token arrive(std::ptrdiff_t n = 1) { return arrival_token(enter(n, 0)); }
  void wait(arrival_token&& token) const { wait_for(token.phase); }
  void arrive_and_wait() {
    if (barrier_base::arrive_and_wait()) complete();
  }
  void arrive_and_drop() { enter(1, 1); }

 private:
  std::uint64_t enter(std::ptrdiff_t n, std::ptrdiff_t dropped) {
    std::uint64_t phase;
    if (barrier_base::arrive(n, dropped, phase)) complete();
    return phase;
  }
  void complete() noexcept {
    completion_();
    next_phase();
  }
  [[no_unique_address]] CompletionFunction completion_;
};

}  // namespace weft
