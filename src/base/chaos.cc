// SPDX-License-Identifier: Apache-2.0
// See chaos.h. What happens at a name is drawn from a generator of the thread's own, seeded by the
// seed and by how many threads came before it. So a seed fixes the mixture and each thread's
// stream; which thread comes first is the kernel's, and a failure may take a few runs of its seed
// to come again.
//
// The mixture: the seed draws a period for each name, and something happens once in so many
// passes. Most of that is a yield or a spin of a few microseconds; a sleep is what moves whole
// threads, and costs the most, so it is rare.
//
// Settings are read before main, and from then on only by tests (configure) while nothing runs.
//
// Runs on any stack, in signal handlers too.
#include "base/chaos.h"

#if defined(WEFT_CHAOS)

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/print.h"
#include "base/random.h"

namespace weft::rt::chaos {
namespace {

struct tally {
  atomic<std::uint64_t> passed{0}, acted{0};
};
constinit tally at_point[npoints];
constinit tally at_fault[nfaults];

constexpr std::uint32_t never = 0;
constinit atomic<std::uint32_t> period[npoints];  // something happens once in so many passes

// Which calls fail, and how: the first-th, all from there on, or so many in a million.
struct plan {
  std::uint64_t first = 0;
  bool and_on = false;
  std::uint32_t ppm = 0;
  int error = 0;  // 0: one of those that the call is known for
};
constinit plan plans[nfaults];

constinit std::uint64_t seed = 1;
constinit bool is_on = false;
constinit char text[512] = "off";
constinit char report_to[256] = "";
constinit atomic<std::uint32_t> threads{0};
constinit atomic<int> held{0};  // no_force

// -- the generator of a thread

// A handler that comes between the load and the store only makes two draws alike.
thread_local constinit atomic<std::uint64_t> state{0};

// Out of line, and no address of it leaves: the caller may be on another thread next time.
[[gnu::noinline]] std::uint64_t draw() noexcept {
  std::uint64_t s = state.load(memory_order_relaxed);
  if (s == 0) {
    random first(seed + 0x9e3779b97f4a7c15ULL * (1 + threads.fetch_add(1, memory_order_relaxed)));
    s = first.next() | 1;
  }
  random r(s);
  const std::uint64_t v = r.next();
  s += 0xa0761d6478bd642fULL;
  state.store(s != 0 ? s : 1, memory_order_relaxed);
  return v;
}

// -- what happens

void spin(std::uint64_t v) noexcept {
  for (std::uint64_t n = 20 + v % 300; n != 0; --n) cpu_relax();
}

void nap(std::uint64_t v) noexcept {
  const timespec ts{0, static_cast<long>(10'000 + v % 90'000)};
  ::syscall(SYS_nanosleep, &ts, nullptr);
}

[[gnu::noinline]] void act(std::uint64_t v) noexcept {
  const int saved = errno;
  const std::uint64_t kind = v % 16;
  v /= 16;
  if (kind < 7) {
    ::syscall(SYS_sched_yield);
  } else if (kind < 13) {
    spin(v);
  } else {
    nap(v);
  }
  errno = saved;
}

bool happens(std::size_t point, std::uint64_t v) noexcept {
  const std::uint32_t n = period[point].load(memory_order_relaxed);
  return n != never && (v >> 32) * n >> 32 == 0;
}

// -- errors that a call is known for

struct known {
  std::string_view name;
  int error;
};
constexpr known errors[] = {{"EAGAIN", EAGAIN}, {"EINTR", EINTR},   {"EINVAL", EINVAL},
                            {"EMFILE", EMFILE}, {"ENFILE", ENFILE}, {"ENOBUFS", ENOBUFS},
                            {"ENOMEM", ENOMEM}, {"ENOSPC", ENOSPC}, {"ECONNABORTED", ECONNABORTED},
                            {"ENOSYS", ENOSYS}, {"EPERM", EPERM}};

int usual_error(std::string_view name, std::uint64_t v) noexcept {
  const auto one_of = [v](int a, int b) { return v % 2 == 0 ? a : b; };
  if (name == "accept" || name == "eventfd" || name == "epoll_create" || name == "socket" ||
      name == "pipe")
    return one_of(EMFILE, ENFILE);
  if (name == "epoll_ctl") return one_of(ENOMEM, ENOSPC);
  if (name == "epoll_wait") return EINTR;
  if (name == "io_uring_enter") return one_of(EAGAIN, EINTR);
  if (name == "pthread_create" || name == "timer_create") return EAGAIN;
  if (name == "madvise" || name == "process_madvise") return one_of(EAGAIN, ENOMEM);
  if (name == "membarrier") return EPERM;
  return ENOMEM;
}

// -- settings

[[noreturn]] void complain(std::string_view about) noexcept {
  printer(2) << "WEFT_CHAOS: cannot read '" << about
             << "'; there are: seed=N, only=PREFIX, faults=NAME:N[-|%][:ERRNO]+..., report=PATH,"
                " off\n";
  ::_exit(2);
}

// Takes what stands before `end` off the front.
std::string_view cut(std::string_view& s, char end) noexcept {
  const std::size_t at = s.find(end);
  const std::string_view front = s.substr(0, at);
  s.remove_prefix(at == s.npos ? s.size() : at + 1);
  return front;
}

std::uint64_t number(std::string_view s) noexcept {
  std::uint64_t v = 0;
  if (s.empty()) complain(s);
  for (const char c : s) {
    if (c < '0' || c > '9') complain(s);
    v = v * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return v;
}

void read_fault(std::string_view item) noexcept {
  std::string_view rest = item;
  const std::string_view name = cut(rest, ':');
  std::string_view when = cut(rest, ':');
  std::size_t f = 0;
  while (f < nfaults && faults[f] != name) ++f;
  if (f == nfaults || when.empty()) complain(item);
  plan p;
  const char mark = when.back();
  if (mark == '-' || mark == '%') when.remove_suffix(1);
  const std::uint64_t n = number(when);
  if (mark == '%') {
    p.ppm = static_cast<std::uint32_t>(n * 10'000);
  } else {
    p.first = n;
    p.and_on = mark == '-';
  }
  if (!rest.empty()) {
    for (const known& k : errors) {
      if (k.name == rest) p.error = k.error;
    }
    if (p.error == 0) complain(item);
  }
  plans[f] = p;
}

void copy(char* to, std::size_t size, std::string_view s) noexcept {
  const std::size_t n = s.size() < size - 1 ? s.size() : size - 1;
  std::memcpy(to, s.data(), n);
  to[n] = '\0';
}

void mix(std::string_view only) noexcept {
  random r(seed * 0x9e3779b97f4a7c15ULL);
  for (std::size_t i = 0; i < npoints; ++i) {
    constexpr std::uint32_t windows[] = {never, 4096, 512, 128, 32};
    constexpr std::uint32_t choices[] = {never, 512, 64, 16, 4};
    const bool choice = points[i].substr(0, 6) == "force.";
    const std::uint32_t n = (choice ? choices : windows)[r.below(5)];
    const bool wanted = points[i].substr(0, only.size()) == only;
    period[i].store(wanted ? n : never, memory_order_relaxed);
  }
}

__attribute__((constructor)) void read_environment() noexcept {
  const char* s = std::getenv("WEFT_CHAOS");
  configure(s != nullptr ? s : "seed=1");
}

// One write a process, so that those of several do not mix.
__attribute__((destructor)) void report() noexcept {
  if (report_to[0] == '\0') return;
  static char out[16 * 1024];
  std::size_t n = 0;
  const auto put = [&n](std::string_view s) {
    const std::size_t k = s.size() < sizeof out - n ? s.size() : sizeof out - n;
    std::memcpy(out + n, s.data(), k);
    n += k;
  };
  const auto put_number = [&put](std::uint64_t v) {
    char digits[20];
    std::size_t k = sizeof digits;
    do {
      digits[--k] = static_cast<char>('0' + v % 10);
    } while ((v /= 10) != 0);
    put({digits + k, sizeof digits - k});
  };
  const auto line = [&](std::string_view kind, std::string_view name, const tally& t) {
    put(kind);
    put(name);
    put(" ");
    put_number(t.passed.load(memory_order_relaxed));
    put(" ");
    put_number(t.acted.load(memory_order_relaxed));
    put("\n");
  };
  for (std::size_t i = 0; i < npoints; ++i) line("point ", points[i], at_point[i]);
  for (std::size_t i = 0; i < nfaults; ++i) line("fault ", faults[i], at_fault[i]);
  const int fd = ::open(report_to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0 || ::write(fd, out, n) < 0) printer(2) << "WEFT_CHAOS: no report written\n";
  if (fd >= 0) ::close(fd);
}

}  // namespace

void pass(std::size_t point) noexcept {
  if (!is_on) return;
  at_point[point].passed.fetch_add(1, memory_order_relaxed);
  const std::uint64_t v = draw();
  if (!happens(point, v)) return;
  at_point[point].acted.fetch_add(1, memory_order_relaxed);
  act(v & 0xffffffffU);
}

bool choose(std::size_t point) noexcept {
  if (!is_on) return false;
  at_point[point].passed.fetch_add(1, memory_order_relaxed);
  if (held.load(memory_order_relaxed) != 0 || !happens(point, draw())) return false;
  at_point[point].acted.fetch_add(1, memory_order_relaxed);
  return true;
}

int fail(std::size_t fault) noexcept {
  if (!is_on) return 0;
  const plan& p = plans[fault];
  const std::uint64_t n = at_fault[fault].passed.fetch_add(1, memory_order_relaxed) + 1;
  const bool now = p.ppm != 0 ? (draw() >> 32) * 1'000'000 >> 32 < p.ppm
                   : p.and_on ? n >= p.first
                              : n == p.first;
  if (!now) return 0;
  at_fault[fault].acted.fetch_add(1, memory_order_relaxed);
  return p.error != 0 ? p.error : usual_error(faults[fault], draw());
}

void configure(const char* setting) noexcept {
  copy(text, sizeof text, setting);
  is_on = std::strcmp(setting, "off") != 0;
  seed = 1;
  report_to[0] = '\0';
  for (plan& p : plans) p = {};
  for (tally& t : at_fault) {
    t.passed.store(0, memory_order_relaxed);
    t.acted.store(0, memory_order_relaxed);
  }
  std::string_view only;
  for (std::string_view rest = is_on ? setting : ""; !rest.empty();) {
    const std::string_view item = cut(rest, ',');
    std::string_view value = item;
    const std::string_view name = cut(value, '=');
    if (name == "seed") {
      seed = number(value);
    } else if (name == "only") {
      only = value;
    } else if (name == "report") {
      copy(report_to, sizeof report_to, value);
    } else if (name == "faults") {
      while (!value.empty()) read_fault(cut(value, '+'));
    } else {
      complain(item);
    }
  }
  mix(only);
}

const char* setting() noexcept { return text; }

no_force::no_force() noexcept { held.fetch_add(1, memory_order_relaxed); }
no_force::~no_force() { held.fetch_sub(1, memory_order_relaxed); }

counts count_of(point_name n) noexcept {
  return {at_point[n.index].passed.load(memory_order_relaxed),
          at_point[n.index].acted.load(memory_order_relaxed)};
}
counts count_of_fault(fault_name n) noexcept {
  return {at_fault[n.index].passed.load(memory_order_relaxed),
          at_fault[n.index].acted.load(memory_order_relaxed)};
}

}  // namespace weft::rt::chaos

#endif
