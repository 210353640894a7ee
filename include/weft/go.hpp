// SPDX-License-Identifier: Apache-2.0
// Goroutines: go, async and task, promise, scope, yield, goexit, procs, local. Long because API.md
// has them in one header.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

#include <weft/chan.hpp>
#include <weft/context.hpp>
#include <weft/detail/event.hpp>
#include <weft/detail/spawn.hpp>

namespace weft {

struct spawn_options {
  std::size_t stack_size = 0;  // 0 = config's
  std::string_view name = {};  // copied
};

// Starts a goroutine. f and its arguments are decay-copied at the call; a result is dropped.
template <class F, class... A>
requires std::invocable<std::decay_t<F>, std::decay_t<A>...> WEFT_STARTS void go(F&& f, A&&... a) {
  if (detail::is_nil(f)) detail::go_of_nil();
  detail::spawn<detail::closure<std::decay_t<F>, std::decay_t<A>...>>(std::forward<F>(f),
                                                                      std::forward<A>(a)...);
}
template <class F, class... A>
requires std::invocable<std::decay_t<F>, std::decay_t<A>...> WEFT_STARTS void go(
    const spawn_options& o, F&& f, A&&... a) {
  if (detail::is_nil(f)) detail::go_of_nil();
  detail::spawn_with<detail::closure<std::decay_t<F>, std::decay_t<A>...>>(
      [&o](std::size_t size, std::size_t align) __attribute__((always_inline)) {
        return detail::spawn_begin(size, align, o.stack_size, o.name);
      },
      std::forward<F>(f), std::forward<A>(a)...);
}

// Gives way: everybody else who is runnable gets a turn before this goroutine comes round again.
WEFT_API void yield();
// Ends this goroutine; destructors run. Counts as done for scope and task. Fatal on a plain thread.
[[noreturn]] WEFT_API void goexit();
WEFT_API std::uint64_t goid();  // 0 on a plain thread
WEFT_API std::size_t num_goroutines();
WEFT_API int procs();
WEFT_API int set_procs(
    int n);  // n < 1 only reads; returns the previous value; stops following the CPU limit
WEFT_API void set_procs_auto();  // follows the CPU limit again
WEFT_API int num_cpu();

// Thrown by task::get when the goroutine called goexit.
struct goexited : std::runtime_error {
  goexited() : std::runtime_error("goroutine called goexit") {}
};

namespace detail {

// What a task and its goroutine share. Small ones come from the P's blocks and not from malloc.
class task_state_base {
 public:
  explicit task_state_base(int owners) noexcept : refs_(owners) {}
  void retain() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  bool last_release() noexcept {
    // The last owner need not count: nobody else can. Acquire: with the other side's release.
    return refs_.load(std::memory_order_acquire) == 1 ||
           refs_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  static void* operator new(std::size_t size) {
    return size <= block_size ? block_alloc() : ::operator new(size);
  }
  static void operator delete(void* p, std::size_t size) noexcept {
    size <= block_size ? block_free(p) : ::operator delete(p);
  }
  // Over-aligned results.
  static void* operator new(std::size_t size, std::align_val_t a) {
    return ::operator new(size, a);
  }
  static void operator delete(void* p, std::align_val_t a) noexcept { ::operator delete(p, a); }
  event done;

 private:
  std::atomic<int> refs_;

 public:
  std::exception_ptr error;
};

template <class R>
class task_state : public task_state_base {
 public:
  using task_state_base::task_state_base;
  template <class F>
  void run(F&& f) {
    value_.emplace(std::forward<F>(f)());
  }
  template <class V>
  void emplace(V&& v) {
    value_.emplace(std::forward<V>(v));
  }
  bool has_value() const noexcept { return value_.has_value(); }
  R take() { return std::move(*value_); }

 private:
  std::optional<R> value_;
};
template <class R>
class task_state<R&> : public task_state_base {
 public:
  using task_state_base::task_state_base;
  template <class F>
  void run(F&& f) {
    value_ = std::addressof(std::forward<F>(f)());
  }
  void emplace(R& v) { value_ = std::addressof(v); }
  bool has_value() const noexcept { return value_ != nullptr; }
  R& take() { return *value_; }

 private:
  R* value_ = nullptr;
};
template <>
class task_state<void> : public task_state_base {
 public:
  using task_state_base::task_state_base;
  template <class F>
  void run(F&& f) {
    std::forward<F>(f)();
    returned_ = true;
  }
  void emplace() { returned_ = true; }
  bool has_value() const noexcept { return returned_; }
  void take() {}

 private:
  bool returned_ = false;
};

template <class S>
class state_ref {  // intrusive, as small as a pointer
 public:
  state_ref() noexcept = default;
  explicit state_ref(S* s) noexcept : s_(s) {}
  state_ref(state_ref&& o) noexcept : s_(std::exchange(o.s_, nullptr)) {}
  state_ref& operator=(state_ref&& o) noexcept {
    if (this != &o) {
      reset();
      s_ = std::exchange(o.s_, nullptr);
    }
    return *this;
  }
  ~state_ref() { reset(); }
  state_ref share() const noexcept {
    s_->retain();
    return state_ref(s_);
  }
  void reset() noexcept {
    S* s = std::exchange(s_, nullptr);
    if (s != nullptr && s->last_release()) delete s;
  }
  S* operator->() const noexcept { return s_; }
  S* get() const noexcept { return s_; }
  explicit operator bool() const noexcept { return s_ != nullptr; }

 private:
  S* s_ = nullptr;
};

}  // namespace detail

template <class R>
class promise;

// The result of async, or of a promise. Move-only; the destructor detaches, an exception nobody
// fetched is dropped.
template <class R>
class [[nodiscard]] task {
 public:
  task() noexcept = default;

  // Everything below throws std::logic_error on an invalid task.
  void wait() const { state()->done.wait(); }
  template <class Rep, class Period>
  bool wait_for(std::chrono::duration<Rep, Period> d) const {  // whether it is done
    return state()->done.wait_until(detail::deadline_in(d));
  }
  bool done() const { return state()->done.is_set(); }
  bool valid() const noexcept { return static_cast<bool>(s_); }
  // Closed when it is done: a select over several is a wait for any of them.
  recv_chan<void> completed() const {
    return detail::chan_access::adopt<recv_chan<void>>(detail::chan_ref(state()->done.channel()));
  }
  // Once: the task is invalid afterwards. Rethrows what f threw; throws goexited if f called
  // goexit.
  R get() {
    wait();
    auto s = std::move(s_);
    if (s->error) std::rethrow_exception(std::move(s->error));
    if (!s->has_value()) throw goexited();
    return s->take();
  }

 private:
  template <class F, class... A>
  requires std::invocable<std::decay_t<F>, std::decay_t<A>...>
  friend auto async(F&& f, A&&... a)
      -> task<std::invoke_result_t<std::decay_t<F>, std::decay_t<A>...>>;
  template <class T>
  friend class promise;

  using state_type = detail::task_state<R>;
  explicit task(detail::state_ref<state_type> s) noexcept : s_(std::move(s)) {}
  const detail::state_ref<state_type>& state() const {
    if (!s_) throw std::logic_error("weft::task: invalid");
    return s_;
  }
  detail::state_ref<state_type> s_;
};

namespace detail {

// The goroutine's side of a task: whatever way f ends, the event is set after the result is in
// place and f is destroyed, so that what it holds is gone when wait returns, as with std::thread.
template <class S, class C>
struct task_call {
  static constexpr bool moves_as_bytes = relocatable<C>;
  state_ref<S> s;  // none: `call` is gone
  union {
    C call;
  };
  template <class... A>
  explicit task_call(state_ref<S> st, A&&... a) : s(std::move(st)), call(std::forward<A>(a)...) {}
  task_call(const task_call&) = delete;
  task_call& operator=(const task_call&) = delete;
  ~task_call() {
    if (s) std::destroy_at(std::addressof(call));
  }
  void operator()() {
    struct finish {  // on goexit too
      task_call& t;
      ~finish() {
        const state_ref<S> last = std::move(t.s);
        std::destroy_at(std::addressof(t.call));
        last->done.set();
      }
    } f{*this};
    run_catching(s->error, [this] { s->run(call); });
  }
};

// This goroutine unwinds with an exception that nobody handles: the report comes at its end.
WEFT_API bool is_failing() noexcept;
// Calls f and stores what it throws; lets goexit through.
WEFT_API void run_catching(std::exception_ptr& error, void (*f)(void*), void* arg);
template <class F>
void run_catching(std::exception_ptr& error, F f) {
  run_catching(
      error, [](void* p) { (*static_cast<F*>(p))(); }, &f);
}

}  // namespace detail

// Starts f in a goroutine; the task has its result or its exception.
template <class F, class... A>
requires std::invocable<std::decay_t<F>, std::decay_t<A>...> WEFT_STARTS auto async(F&& f, A&&... a)
    -> task<std::invoke_result_t<std::decay_t<F>, std::decay_t<A>...>> {
  using R = std::invoke_result_t<std::decay_t<F>, std::decay_t<A>...>;
  using S = detail::task_state<R>;
  using C = detail::task_call<S, detail::closure<std::decay_t<F>, std::decay_t<A>...>>;
  if (detail::is_nil(f)) detail::go_of_nil();
  detail::state_ref<S> s(new S(2));
  detail::spawn<C>(detail::state_ref<S>(s.get()), std::forward<F>(f), std::forward<A>(a)...);
  return task<R>(std::move(s));
}

// The other end of a task, for callbacks: the value or the exception comes from any thread. A
// promise that is destroyed without either breaks: get() throws std::future_error-like
// std::logic_error "broken promise".
template <class T>
class promise {
 public:
  promise() : s_(new detail::task_state<T>(1)) {}
  promise(promise&& o) noexcept
      : s_(std::move(o.s_)),
        fetched_(o.fetched_),
        taken_(o.taken_.load(std::memory_order_relaxed)) {}
  promise& operator=(promise&& o) noexcept {
    if (this != &o) {
      abandon();
      s_ = std::move(o.s_);
      fetched_ = o.fetched_;
      taken_.store(o.taken_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    return *this;
  }
  ~promise() { abandon(); }

  task<T> get_task() {
    if (!s_) throw std::logic_error("weft::promise: moved from");
    if (std::exchange(fetched_, true))
      throw std::logic_error("weft::promise: task already fetched");
    return task<T>(s_.share());
  }
  // One of all the calls, from whatever threads, succeeds; the others throw std::logic_error. A
  // value whose constructor throws leaves the promise as it was.
  void set_value() requires std::is_void_v<T> {
    take();
    s_->emplace();
    s_->done.set();
  }
  template <class V = T>  // for set_value({…})
  requires requires(detail::task_state<T>& s, V&& v) { s.emplace(std::forward<V>(v)); }
  void set_value(V&& v) {
    take();
    try {
      s_->emplace(std::forward<V>(v));
    } catch (...) {
      taken_.store(false, std::memory_order_release);  // with take: what it has written comes first
      throw;
    }
    s_->done.set();
  }
  void set_exception(std::exception_ptr e) {
    // Else get() would find neither value nor exception, and blame a goexit.
    if (e == nullptr) throw std::invalid_argument("weft::promise: null exception");
    take();
    s_->error = std::move(e);
    s_->done.set();
  }

 private:
  // Acquire: with one whose value threw on its way in. What the winner writes is published by the
  // event.
  void take() {
    if (!s_) throw std::logic_error("weft::promise: moved from");
    if (taken_.exchange(true, std::memory_order_acquire))
      throw std::logic_error("weft::promise: already satisfied");
  }
  void abandon() noexcept {
    if (!s_ || s_->done.is_set()) return;
    s_->error = std::make_exception_ptr(std::logic_error("weft::promise: broken promise"));
    s_->done.set();
  }
  detail::state_ref<detail::task_state<T>> s_;
  bool fetched_ = false;
  std::atomic<bool> taken_{false};
};

namespace detail {
// How many exceptions and goexits unwind this goroutine or thread.
WEFT_API int unwind_depth() noexcept;

// For a destructor that waits: as long as it lives a goexit that was put off does not go on.
class goexit_waits {
 public:
  WEFT_API goexit_waits() noexcept;
  WEFT_API ~goexit_waits();
  goexit_waits(const goexit_waits&) = delete;
  goexit_waits& operator=(const goexit_waits&) = delete;

 private:
  bool put_off_;
};
}  // namespace detail

// Structured concurrency: what is started in a scope has ended when the scope has. The first
// exception cancels its context, which is made when somebody first asks for it.
class [[nodiscard]] scope {
 public:
  scope() : scope(0) {}
  explicit scope(std::size_t limit) : entered_(detail::unwind_depth()) {
    if (limit != 0) gate_.emplace(limit);
  }
  // context() is a child of parent. Throws std::invalid_argument if that is nil.
  explicit scope(const weft::context& parent, std::size_t limit = 0) : scope(limit) {
    detail::context_access::parent(parent);
    parent_ = detail::context_access::ref(parent);
  }
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;

  // Blocks while `limit` many run.
  template <class F, class... A>
  requires std::invocable<std::decay_t<F>, std::decay_t<A>...> WEFT_STARTS void go(F&& f,
                                                                                   A&&... a) {
    using C = call<detail::closure<std::decay_t<F>, std::decay_t<A>...>>;
    if (detail::is_nil(f)) detail::go_of_nil();
    ticket t(*this);
    detail::spawn<C>(this, std::forward<F>(f), std::forward<A>(a)...);
    t.used = true;
  }
  // All done; rethrows the first exception, once.
  void wait() {
    join();
    if (take_error()) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  // For those who run in the scope: done when cancel() is called, one of them throws, the parent is
  // done or the scope ends.
  void cancel() noexcept { detail::cancel_context(node(), nullptr); }
  weft::context context() const {
    detail::context_node* n = node();
    n->retain();
    return detail::context_access::adopt(n);
  }
  // Waits. While unwinding it cancels first and drops exceptions; otherwise one that wait() has not
  // rethrown is fatal, as for go.
  ~scope() {
    if (!running_.idle()) {
      if (detail::unwind_depth() > entered_) cancel();
      const detail::goexit_waits until_joined;
      join();
    }
    if (node_.load(std::memory_order_acquire) != nullptr) end_context();
    if (detail::unwind_depth() <= entered_ && take_error()) detail_report(error_);
  }

 private:
  struct ticket {
    scope& s;
    bool used = false;
    explicit ticket(scope& sc) : s(sc) {
      if (s.gate_) s.gate_->enter();
      s.running_.add();
    }
    ~ticket() {
      if (!used) s.finished();
    }
  };
  template <class C>
  struct call {  // as task_call
    static constexpr bool moves_as_bytes = detail::relocatable<C>;
    scope* s;  // null: fn is gone
    union {
      C fn;
    };
    template <class... A>
    explicit call(scope* sc, A&&... a) : s(sc), fn(std::forward<A>(a)...) {}
    call(const call&) = delete;
    call& operator=(const call&) = delete;
    ~call() {
      if (s != nullptr) std::destroy_at(std::addressof(fn));
    }
    void operator()() {
      struct finish {  // on goexit too
        call& c;
        ~finish() {
          scope* in = std::exchange(c.s, nullptr);
          std::destroy_at(std::addressof(c.fn));
          in->finished();
        }
      } f{*this};
      std::exception_ptr e;
      detail::run_catching(e, [this] { fn(); });
      if (e) s->failed(std::move(e));
    }
  };
  void failed(std::exception_ptr e) noexcept {
    failure none = failure::none;
    if (!failed_.compare_exchange_strong(none, failure::claimed, std::memory_order_relaxed)) return;
    detail::cancel_context(node(), e);
    error_ = std::move(e);
    failed_.store(failure::kept, std::memory_order_release);  // with take_error's acquire
  }
  // True for one, who owns error_ from then on.
  bool take_error() noexcept {
    failure kept = failure::kept;
    return failed_.compare_exchange_strong(kept, failure::taken, std::memory_order_acquire,
                                           std::memory_order_relaxed);
  }
  // Any number may wait, but running_ knows one at a time.
  void join() {
    if (running_.idle()) return;
    struct turn {
      detail::gate& g;
      explicit turn(detail::gate& t) : g(t) { g.enter(); }
      ~turn() { g.leave(); }
    } mine(turn_);
    running_.wait();
  }
  detail::context_node* node() const {
    detail::context_node* n = node_.load(std::memory_order_acquire);  // with make_node's release
    return n != nullptr ? n : make_node();
  }
  WEFT_API detail::context_node* make_node() const;
  WEFT_API void end_context() noexcept;
  void finished() noexcept {
    if (gate_) gate_->leave();
    running_.done();  // last touch
  }
  [[noreturn]] WEFT_API static void detail_report(const std::exception_ptr& e) noexcept;

  detail::countdown running_;
  std::optional<detail::gate> gate_;
  detail::gate turn_{1};
  enum class failure : std::uint8_t { none, claimed, kept, taken };
  std::atomic<failure> failed_{failure::none};
  std::exception_ptr error_;  // of the first that failed; whose it is, failed_ says
  int entered_;
  detail::node_ref parent_;  // null: background
  mutable std::atomic<detail::context_node*> node_{nullptr};
};

namespace detail {
struct local_slot;
WEFT_API local_slot* take_local_slot();
WEFT_API void give_local_slot(local_slot* s) noexcept;
WEFT_API void* find_local(const local_slot* s) noexcept;
WEFT_API void add_local(const local_slot* s, void* object, void (*destroy)(void*));
WEFT_API void remove_local(const local_slot* s) noexcept;
}  // namespace detail

// A value per goroutine (per thread outside one), made at first use, destroyed with the goroutine.
// If the local goes first, the value of the goroutine that destroys it goes with it, and each of
// the others' with its goroutine at the latest. Finding one takes as long among a thousand locals
// as alone.
template <class T>
class local {
 public:
  local() requires std::default_initializable<T> : make_([] { return new T(); }) {}
  // Neither T nor F need be movable or copyable beyond this call: T is built in place, F is shared.
  template <class F>
  requires std::is_invocable_r_v<T, F&>
  explicit local(F init)
      : make_([f = std::make_shared<F>(std::move(init))] { return new T((*f)()); }) {}
  local(const local&) = delete;
  local& operator=(const local&) = delete;
  ~local() { detail::give_local_slot(slot_); }

  T& operator*() const { return *get(); }
  T* operator->() const { return get(); }
  // Destroys this goroutine's value; the next use makes a new one.
  void reset() const { detail::remove_local(slot_); }

 private:
  T* get() const {
    if (void* p = detail::find_local(slot_)) return static_cast<T*>(p);
    std::unique_ptr<T> v(make_());
    detail::add_local(slot_, v.get(), [](void* p) { delete static_cast<T*>(p); });
    return v.release();
  }
  std::function<T*()> make_;
  detail::local_slot* slot_ = detail::take_local_slot();
};

}  // namespace weft
