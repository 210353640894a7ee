// SPDX-License-Identifier: Apache-2.0
// See uring.h. What need not wait is done by the caller: a read of what is in memory (RWF_NOWAIT),
// a write into memory. The rest, reads that miss, writes that go through to the disk, sync, is
// queued for one thread of ours that owns the ring. It puts what it finds in the queue into the
// ring, and sleeps there until something is done or the bell (an eventfd, read by the ring too) has
// rung.
//
// Why a thread: the kernel finishes a request in the thread that has submitted it. Submitted by an
// M it would interrupt whatever that does meanwhile, a user's epoll_wait with EINTR for one, and
// would be cancelled with an M that ends. The hand-over costs some microseconds, a disk some
// hundred.
//
// The ring is that thread's alone, so the indices that it shares with the kernel are all the
// ordering there is: sq tail is ours (release; the kernel acquires), cq tail the kernel's
// (acquire), cq head ours (release: the entry may be overwritten).
//
// A goroutine whose run ends while it waits here is never resumed, and neither is its stack used
// again: what the kernel still writes there harms nobody.
//
// Rejected: liburing. A ring that one thread uses is a page of code, and every program that links
// with weft would have to have the library. Rejected: io_uring for every call. A read from memory
// costs it twice the plain call, and most writes it would only hand to a thread of the kernel's.
//
// Runs on the caller's stack; commits on the arriving one; the ring on its thread.
#include "file/uring.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <linux/io_uring.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/chaos.h"
#include "os/mutex.h"
#include "os/tasks.h"
#include "os/thread.h"
#include "sched/waiter.h"
#include "weft/thread.hpp"

namespace weft::detail {
namespace {

constexpr std::uint32_t entries = 64;
constexpr std::size_t most = 0x7fff'f000;  // what one call transfers, see calls.cc

struct request {
  rt::waiter w;
  const file_call* call = nullptr;
  long result = 0;
  request* next = nullptr;
};

class ring {
 public:
  bool open() noexcept;  // false: there is none to be had
  // Room for so many more before they are submitted.
  std::uint32_t room() const noexcept { return entries - put_; }
  io_uring_sqe& put() noexcept {
    io_uring_sqe& e = sqes_[tail_++ & mask_];
    ++put_;
    std::memset(&e, 0, sizeof e);
    return e;
  }
  // What was put goes to the kernel; sleeps until something is done.
  void submit_and_wait() noexcept;
  // f(user_data, result) for all that is done.
  template <class F>
  void reap(F f) noexcept {
    std::uint32_t h = std::atomic_ref(*cq_head_).load(std::memory_order_relaxed);
    while (h != std::atomic_ref(*cq_tail_).load(std::memory_order_acquire)) {
      const io_uring_cqe e = cqes_[h & cq_mask_];
      std::atomic_ref(*cq_head_).store(++h, std::memory_order_release);
      f(e.user_data, e.res);
    }
  }

  // Once it is open, and whoever asks knows that it is.
  int fd() const noexcept { return fd_; }
  uring_mapping mapping(int i) const noexcept { return mappings_[i]; }

 private:
  int fd_ = -1;
  uring_mapping mappings_[2];
  std::uint32_t tail_ = 0, put_ = 0;  // the last one put; how many of them the kernel has not seen
  std::uint32_t mask_ = 0, cq_mask_ = 0;
  std::uint32_t *sq_tail_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
  io_uring_sqe* sqes_ = nullptr;
  io_uring_cqe* cqes_ = nullptr;
};

void* map_ring(int fd, std::size_t size, std::uint64_t what) noexcept {
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                   static_cast<off_t>(what));
  return p != MAP_FAILED ? p : nullptr;
}

bool ring::open() noexcept {
  io_uring_params p{};
  // Linux 5.7: one mapping for both queues, nothing is dropped, the file's position is known, and a
  // read that must wait is polled for instead of being given to a thread.
  constexpr std::uint32_t needed =
      IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS | IORING_FEAT_FAST_POLL;
  if (rt::chaos::fault("io_uring_setup") != 0) return false;
  rt::expect_workers();
  fd_ = static_cast<int>(::syscall(SYS_io_uring_setup, entries, &p));
  if (fd_ < 0) return false;
  const std::size_t queues = std::max(p.sq_off.array + p.sq_entries * sizeof(std::uint32_t),
                                      p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe));
  const std::size_t requests = p.sq_entries * sizeof(io_uring_sqe);
  auto* q = (p.features & needed) == needed && p.sq_entries == entries
                ? static_cast<char*>(map_ring(fd_, queues, IORING_OFF_SQ_RING))
                : nullptr;
  void* s = q != nullptr ? map_ring(fd_, requests, IORING_OFF_SQES) : nullptr;
  if (s == nullptr) {
    if (q != nullptr) ::munmap(q, queues);
    ::close(fd_);
    return false;
  }
  const auto word = [q](std::uint32_t at) { return reinterpret_cast<std::uint32_t*>(q + at); };
  sq_tail_ = word(p.sq_off.tail);
  mask_ = *word(p.sq_off.ring_mask);
  cq_head_ = word(p.cq_off.head);
  cq_tail_ = word(p.cq_off.tail);
  cq_mask_ = *word(p.cq_off.ring_mask);
  cqes_ = reinterpret_cast<io_uring_cqe*>(q + p.cq_off.cqes);
  sqes_ = static_cast<io_uring_sqe*>(s);
  const auto at = [](const void* of) { return reinterpret_cast<std::uintptr_t>(of); };
  mappings_[0] = {at(q), at(q) + queues};
  mappings_[1] = {at(s), at(s) + requests};
  for (std::uint32_t i = 0; i < entries; ++i) word(p.sq_off.array)[i] = i;  // in order, always
  return true;
}

void ring::submit_and_wait() noexcept {
  std::atomic_ref(*sq_tail_).store(tail_, std::memory_order_release);
  do {
    const int refused = rt::chaos::fault("io_uring_enter");
    if (refused != 0) errno = refused;
    const long n = refused != 0 ? -1
                                : ::syscall(SYS_io_uring_enter, fd_, put_, 1,
                                            IORING_ENTER_GETEVENTS, nullptr, 0);
    if (n < 0) {
      if (errno == EINTR) continue;
      // EAGAIN, EBUSY: the kernel is short of memory, or wants what is done to be taken first. What
      // was put stays put, for the next time.
      const timespec a_while{0, 1'000'000};
      ::nanosleep(&a_while, nullptr);
      return;
    }
    put_ -= static_cast<std::uint32_t>(n);
  } while (put_ != 0);
}

class service {
 public:
  bool works() {
    const std::uint32_t s = state_.load(rt::memory_order_acquire);  // with start
    return s == yes || (s == unknown && start());
  }
  // In the commit of the one who waits.
  void put(request* r) noexcept {
    rt::begin_errand();  // until it is woken
    lock_.lock();
    const bool first = first_ == nullptr;
    *last_ = r;
    last_ = &r->next;
    lock_.unlock();
    if (first) ring_bell();
  }

  // Null: not there, or not yet.
  const ring* is_open() const noexcept {
    return state_.load(rt::memory_order_acquire) == yes ? &ring_ : nullptr;
  }

 private:
  enum : std::uint32_t { unknown, asked, yes, no };
  static constexpr std::uint64_t bell = 0;  // a request is its address

  bool start();
  bool open() noexcept;
  void serve() noexcept;
  void ring_bell() const noexcept {
    const int saved = errno;
    const std::uint64_t one = 1;
    while (::write(bell_, &one, sizeof one) < 0 && errno == EINTR) {
    }
    errno = saved;
  }
  request* take_all() noexcept {
    lock_.lock();
    request* r = first_;
    first_ = nullptr;
    last_ = &first_;
    lock_.unlock();
    return r;
  }

  rt::atomic<std::uint32_t> state_{unknown};
  int bell_ = -1;
  std::uint64_t rung_ = 0;  // the kernel writes it
  ring ring_;
  rt::mutex lock_{rt::lock_rank::leaf};
  request* first_ = nullptr;
  request** last_ = &first_;
};

// Whoever comes meanwhile does without; also for ever, if the one who asked is stopped for good.
bool service::start() {
  std::uint32_t s = unknown;
  if (!state_.compare_exchange_strong(s, asked, rt::memory_order_acquire)) return s == yes;
  const bool ok = blocking([this]() noexcept { return open(); });
  state_.store(ok ? yes : no, rt::memory_order_release);
  return ok;
}

// Not inline, for errno's address (DESIGN 2.1). What is left of a vain attempt is one descriptor.
[[gnu::noinline]] bool service::open() noexcept {
  const int saved = errno;
  bell_ = rt::chaos::fault("eventfd") == 0 ? ::eventfd(0, EFD_CLOEXEC) : -1;
  const bool ok = bell_ >= 0 && ring_.open() &&
                  rt::start_service_thread([](void* self) { static_cast<service*>(self)->serve(); },
                                           this, "weft-uring") == 0;
  errno = saved;
  return ok;
}

void fill(io_uring_sqe& e, const file_call& c) noexcept {
  e.fd = c.fd;
  if (c.what == file_call::op::sync) {
    e.opcode = IORING_OP_FSYNC;
    return;
  }
  e.opcode = c.what == file_call::op::read ? IORING_OP_READ : IORING_OP_WRITE;
  e.addr = reinterpret_cast<std::uintptr_t>(c.data);
  e.len = static_cast<std::uint32_t>(std::min(c.size, most));
  e.off = static_cast<std::uint64_t>(c.offset < 0 ? -1 : c.offset);
}

void service::serve() noexcept {
  bool listening = false;
  request* todo = nullptr;
  request** end = &todo;
  for (;;) {
    if (!listening && ring_.room() != 0) {  // what the kernel would not take is still there
      // All that is there, each time: who finds the queue empty rings, and nobody else.
      for (*end = take_all(); *end != nullptr;) end = &(*end)->next;
      io_uring_sqe& e = ring_.put();
      e.opcode = IORING_OP_READ;
      e.fd = bell_;
      e.addr = reinterpret_cast<std::uintptr_t>(&rung_);
      e.len = sizeof rung_;
      e.user_data = bell;
      listening = true;
    }
    while (todo != nullptr && ring_.room() != 0) {
      io_uring_sqe& e = ring_.put();
      fill(e, *todo->call);
      e.user_data = reinterpret_cast<std::uintptr_t>(todo);
      todo = todo->next;
      if (todo == nullptr) end = &todo;
    }
    ring_.submit_and_wait();
    ring_.reap([&](std::uint64_t who, long result) {
      if (who == bell) {
        listening = false;
        return;
      }
      auto* r = reinterpret_cast<request*>(who);
      r->result = result;
      r->w.wake();  // the last touch
      rt::end_errand();
    });
  }
}

constinit service uring;

// By the ring's thread; parks.
long submit(const file_call& c) {
  request r;
  r.call = &c;
  r.w.wait([](void*, void* arg) { uring.put(static_cast<request*>(arg)); }, &r,
           rt::wait_reason::io_wait);
  return r.result;
}

// What is in memory, at once. -EAGAIN: the next byte is not. -EOPNOTSUPP: the file system cannot
// say.
[[gnu::noinline]] long read_cached(const file_call& c, std::size_t done) noexcept {
  const iovec v{static_cast<char*>(c.data) + done, std::min(c.size - done, most)};
  const auto at = c.offset < 0 ? -1 : c.offset + static_cast<std::int64_t>(done);
  const ssize_t n = ::preadv2(c.fd, &v, 1, at, RWF_NOWAIT);
  return n >= 0 ? n : -static_cast<long>(errno);
}

// As one plain read: as much as there is.
long read(const file_call& c) {
  std::size_t done = 0;
  long r = 0;
  do {
    r = blocking([&]() noexcept { return read_cached(c, done); });
    if (r == -EAGAIN || r == -EOPNOTSUPP) {  // the latter are /proc and its like: no disk
      file_call rest = c;
      rest.data = static_cast<char*>(c.data) + done;
      rest.size -= done;
      if (rest.offset >= 0) rest.offset += static_cast<std::int64_t>(done);
      r = r == -EAGAIN ? submit(rest) : perform_blocking(rest);
    }
    if (r > 0) done += static_cast<std::size_t>(r);
  } while (r > 0 && done < std::min(c.size, most));
  return done != 0 ? static_cast<long>(done) : r;
}

}  // namespace

bool uring_works() { return uring.works(); }

bool is_uring(int fd) noexcept {
  const ring* r = uring.is_open();
  return r != nullptr && r->fd() == fd;
}

uring_mapping uring_mapping_at(int i) noexcept {
  const ring* r = uring.is_open();
  return r != nullptr ? r->mapping(i) : uring_mapping{};
}

long perform_uring(const file_call& c) {
  const rt::G* g = rt::current_g();
  const bool waits = c.what != file_call::op::write || c.through;
  // In a bubble nobody waits for a thread outside it.
  if (!waits || (g != nullptr && g->bubbled()) || !uring.works()) return perform_blocking(c);
  return c.what == file_call::op::read ? read(c) : submit(c);
}

}  // namespace weft::detail
