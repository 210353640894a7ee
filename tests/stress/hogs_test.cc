// SPDX-License-Identifier: Apache-2.0
// Nothing stalls a P: goroutines that never call weft and are stopped by signal wherever they
// stand, in libc, the loader, the unwinder, under a lock, with every register in use.
//
// Each test lets more hogs of one kind loop than there are Ps, beside a pair that hands a value to
// and fro and a goroutine that sleeps. In each round every one of them has to move on, within a
// limit that no load of the machine explains; and what the hogs compute must be right.
#include <cfenv>
#include <dlfcn.h>
#include <iomanip>
#include <locale>
#include <malloc.h>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include <weft/chan.hpp>
#include <weft/time.hpp>

#include "stress/support.h"
#include "support/deep_throw.h"

namespace weft::stress {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t stalled = 20 * second;

// One that has to move on. On a cache line of its own: hogs count in hot loops.
struct alignas(64) counter {
  std::atomic<std::uint64_t> n{0};
  void step() { n.fetch_add(1, std::memory_order_relaxed); }
};

class crowd {
 public:
  explicit crowd(int procs, const char* what) : procs_(procs), what_(what) {}

  // work(i) is one step of hog i: true if its result was right. It calls nothing of weft.
  template <class Work>
  void run(Work work) {
    watchdog dog(progress_, what_);
    const std::int64_t end = nanotime() + duration_ns(test::sanitized ? 1 : 2.5);
    std::uint64_t rounds = 0;
    test::run_clean(test::with_procs(procs_), [&] {
      scope s;
      for (int i = 0; i < hogs(); ++i) {
        s.go([&, i] {
          while (!stop_.load(std::memory_order_relaxed)) {
            check_(work(i), "a hog's result");
            counters_[i].step();
          }
        });
      }
      start_bystanders(s);
      do {
        if (!round()) break;
        ++rounds;
      } while (nanotime() < end);
      stop_.store(true);
      s.wait();
    });
    std::uint64_t steps = 0;
    for (int i = 0; i < hogs(); ++i) steps += counters_[i].n.load();
    std::printf("  %d hogs on %d Ps: %llu rounds, %llu steps of theirs\n", hogs(), procs_,
                static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(steps));
    check_.report();
  }

 private:
  static constexpr int bystanders = 3;

  int hogs() const { return 2 * procs_ + 1; }

  void start_bystanders(scope& s) {
    counter* c = &counters_[hogs()];
    for (int i = 0; i < 2; ++i) {
      s.go([this, c, i] {
        const chan<int>&out = i == 0 ? there_ : back_, &in = i == 0 ? back_ : there_;
        for (int k = 0; !stop_.load(std::memory_order_relaxed); ++k) {
          if (out.send_for(k, 10ms) == send_status::ok) c[i].step();
          int v = 0;
          (void)in.recv_for(v, 10ms);
        }
      });
    }
    s.go([this, c] {
      while (!stop_.load(std::memory_order_relaxed)) {
        sleep_for(1ms);
        c[2].step();
      }
    });
  }

  // Until everybody has moved on; main itself wakes from its sleeps meanwhile.
  bool round() {
    std::vector<std::uint64_t> before;
    const std::size_t n = static_cast<std::size_t>(hogs() + bystanders);
    for (std::size_t i = 0; i < n; ++i) before.push_back(counters_[i].n.load());
    const std::int64_t since = nanotime();
    for (std::size_t i = 0; i < n;) {
      if (counters_[i].n.load() != before[i]) {
        ++i;
        continue;
      }
      if (nanotime() - since > stalled) {
        ADD_FAILURE() << what_ << ": number " << i << " of " << hogs() << " hogs and " << bystanders
                      << " bystanders has stood still for " << stalled / second << " s";
        return false;
      }
      sleep_for(1ms);
    }
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += counters_[i].n.load();
    progress_.store(sum);
    return true;
  }

  const int procs_;
  const char* const what_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> progress_{0};
  checker check_;
  chan<int> there_{1}, back_{1};
  counter counters_[16];
};

class Hogs : public Procs {};
INSTANTIATE_TEST_SUITE_P(Procs, Hogs, ::testing::Values(1, 2),
                         [](const ::testing::TestParamInfo<int>& i) {
                           return std::to_string(i.param);
                         });

// -- (a)

std::uint64_t collatz(std::uint64_t from, std::uint64_t to) {
  std::uint64_t steps = 0;
  asm volatile("" : "+r"(from));  // each call computes it anew
  for (std::uint64_t n = from; n < to; ++n) {
    for (std::uint64_t x = n; x != 1; ++steps) x = x % 2 == 0 ? x / 2 : 3 * x + 1;
  }
  return steps;
}

TEST_P(Hogs, Arithmetic) {
  const std::uint64_t right = collatz(1, 3000);
  crowd(procs(), "arithmetic").run([&](int) { return collatz(1, 3000) == right; });
}

// -- (b) blocks of many sizes, some of them mapped and unmapped

TEST_P(Hogs, Malloc) {
  crowd(procs(), "malloc").run([](int i) {
    constexpr std::size_t n = 64;
    char* kept[n];
    bool right = true;
    for (std::size_t j = 0; j < n; ++j) {
      const std::size_t size = j == n - 1 ? 256 * 1024 : 1100 + (j * 977) % 3000;
      kept[j] = static_cast<char*>(std::malloc(size));
      kept[j][0] = static_cast<char>(i);
      kept[j][size - 1] = static_cast<char>(j);
    }
    for (std::size_t j = 0; j < n; ++j) {
      right = right && kept[j][0] == static_cast<char>(i);
      std::free(kept[j]);
    }
    return right;
  });
}

// Many at malloc's locks on one P. If those that wait for a lock each had the P for a while, it
// would go to waste: 64 of them on one arena used 6 % of the CPU.

struct cpu_times {
  std::int64_t wall = nanotime();
  std::int64_t ours = 0;
  std::int64_t idle = 0;  // of all CPUs together
  cpu_times() {
    timespec ts{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    ours = ts.tv_sec * second + ts.tv_nsec;
    std::string cpu;
    std::int64_t user = 0, nice = 0, system = 0, nobody = 0, io = 0;
    std::ifstream("/proc/stat") >> cpu >> user >> nice >> system >> nobody >> io;
    idle = (nobody + io) * second / ::sysconf(_SC_CLK_TCK);
  }
};

class MallocHogs : public ::testing::TestWithParam<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(OnOneP, MallocHogs,
                         ::testing::Combine(::testing::Values(64, 200), ::testing::Bool()),
                         [](const ::testing::TestParamInfo<std::tuple<int, bool>>& i) {
                           return std::to_string(std::get<0>(i.param)) +
                                  (std::get<1>(i.param) ? "OnOneArena" : "OnDefaultArenas");
                         });

TEST_P(MallocHogs, UseTheWholeCpu) {
  const int n = std::get<0>(GetParam());
  const bool one_arena = std::get<1>(GetParam());
  if (one_arena) ::mallopt(M_ARENA_MAX, 1);
  std::vector<counter> steps(static_cast<std::size_t>(n));
  std::atomic<bool> stop{false};
  test::run_clean(test::with_procs(1), [&] {
    scope s;
    for (counter& c : steps) {
      s.go([&] {
        while (!stop.load(std::memory_order_relaxed)) {
          void* kept[64];
          for (std::size_t j = 0; j < 64; ++j) kept[j] = std::malloc(1100 + (j * 977) % 3000);
          for (void* k : kept) std::free(k);
          c.step();
        }
      });
    }
    const cpu_times before;
    sleep_for(std::chrono::nanoseconds(duration_ns(2)));
    const cpu_times after;
    const auto part = [&](std::int64_t ns) {
      return static_cast<double>(ns) / static_cast<double>(after.wall - before.wall);
    };
    const double used = part(after.ours - before.ours), idle = part(after.idle - before.idle);
    std::printf("  %d hogs, %s: %.0f %% of a CPU, %.0f %% idle\n", n,
                one_arena ? "one arena" : "default arenas", 100 * used, 100 * idle);
    // On a busy machine others may have had it; but then nobody has left it idle.
    if (!test::sanitized && idle > 0.05) {
      EXPECT_GE(used, 0.95);
    }
    stop = true;
  });
}

// -- (c)

TEST_P(Hogs, Formatting) {
  crowd(procs(), "formatting").run([](int i) {
    std::ostringstream os;
    os << "hog " << i << std::setw(8) << std::hex << 0xbeef << ' ' << std::setprecision(3) << 0.125;
    std::string s = os.str();
    for (int k = 0; k < 50; ++k) s += std::to_string(k) + ',';
    std::istringstream is(s);
    std::string word;
    int number = -1;
    is >> word >> number;
    char text[64];
    std::snprintf(text, sizeof text, "hog %d    beef 0.125", i);
    return word == "hog" && number == i && s.compare(0, std::strlen(text), text) == 0 &&
           s.ends_with("48,49,");
  });
}

// -- (d)

TEST_P(Hogs, Exceptions) {
  crowd(procs(), "exceptions").run([](int) {
    int cleaned = 0, caught = 0;
    try {
      try {
        test::throw_from(20, &cleaned);
      } catch (const std::runtime_error&) {
        ++caught;
        try {
          throw 7;
        } catch (int seven) {
          caught += seven;
        }
        throw;
      }
    } catch (const std::exception& e) {
      if (std::strcmp(e.what(), "deep down") == 0) ++caught;
    }
    return cleaned == 21 && caught == 9 && std::uncaught_exceptions() == 0;
  });
}

// -- (e) one library that is there, and for each hog one that comes and goes

TEST_P(Hogs, DynamicLoader) {
  constexpr const char* guests[] = {"libresolv.so.2", "libanl.so.1", "libBrokenLocale.so.1",
                                    "librt.so.1", "libnss_compat.so.2"};
  crowd(procs(), "dlopen").run([&](int i) {
    void* stays = ::dlopen("libc.so.6", RTLD_NOW);
    void* goes = ::dlopen(guests[i], RTLD_NOW | RTLD_LOCAL);
    if (stays == nullptr || goes == nullptr) return false;
    auto* abs_of = reinterpret_cast<int (*)(int)>(::dlsym(stays, "abs"));
    const bool right = abs_of != nullptr && abs_of(-3) == 3 &&
                       ::dlsym(goes, "no such symbol") == nullptr && ::dlerror() != nullptr;
    ::dlclose(goes);
    ::dlclose(stays);
    return right;
  });
}

// -- (f) stopped under the lock, while the others sleep in it

TEST_P(Hogs, StdMutex) {
  std::mutex m;
  std::uint64_t in = 0, out = 0;
  crowd(procs(), "std::mutex").run([&](int) {
    const std::lock_guard hold(m);
    const bool alone = in == out;
    ++in;
    const std::uint64_t steps = collatz(1, 500);
    ++out;
    return alone && in == out && steps != 0;
  });
  EXPECT_EQ(in, out);
}

// -- (g)

TEST_P(Hogs, RegexRecursion) {
  const std::regex re("(a|b)*c(\\d+)");
  // A sanitizer's frames are several times as large, the goroutine's stack is not.
  const std::string text = std::string(test::sanitized ? 30 : 150, 'a') + "c123";
  crowd(procs(), "std::regex").run([&](int) {
    std::smatch found;
    return std::regex_match(text, found, re) && found[2] == "123" &&
           !std::regex_match(text + "x", re);
  });
}

// -- (h) every vector register and the x87 stack are live while the loop runs

#if defined(__x86_64__)
using lanes = std::uint64_t __attribute__((vector_size(32)));
#define WEFT_WIDE __attribute__((target("avx2"), noinline))
bool has_wide() { return __builtin_cpu_supports("avx2") != 0; }
#else
using lanes = std::uint64_t __attribute__((vector_size(16)));
#define WEFT_WIDE __attribute__((noinline))
bool has_wide() { return true; }
#endif

constexpr std::size_t vector_registers = 14;

template <std::size_t... R>
WEFT_WIDE std::uint64_t vector_sum(std::uint64_t seed, std::index_sequence<R...>) {
  constexpr std::size_t width = sizeof(lanes) / sizeof(std::uint64_t);
  lanes v[sizeof...(R)];
  for (std::size_t r = 0; r < sizeof...(R); ++r) {
    for (std::size_t i = 0; i < width; ++i) v[r][i] = seed + r * width + i;
  }
  for (int round = 0; round < 2000; ++round) {
    ((v[R] ^= v[R] << 13, v[R] ^= v[R] >> 7, v[R] += v[(R + 1) % sizeof...(R)]), ...);
  }
  std::uint64_t sum = 0;
  for (const lanes& x : v) {
    for (std::size_t i = 0; i < width; ++i) sum = sum * 31 + x[i];
  }
  return sum;
}
std::uint64_t vector_sum(int seed) {
  return vector_sum(static_cast<std::uint64_t>(seed) + 1,
                    std::make_index_sequence<vector_registers>());
}

// Six values that the compiler keeps on the x87 stack; a bit more or less shows in the end.
__attribute__((noinline)) long double x87_sum(int seed) {
  long double a = seed, b = 1, c = 2, d = 3, e = 5, f = 7;
  for (int i = 0; i < 2000; ++i) {
    a = a * 0.5L + b;
    b = b * 0.25L + c;
    c = c * 0.125L + d;
    d = d * 0.75L + e;
    e = e * 0.375L + f;
    f = f * 0.625L + a / 1024;
  }
  return a + b + c + d + e + f;
}

TEST_P(Hogs, VectorRegisters) {
  if (!has_wide()) GTEST_SKIP() << "no AVX2";
  std::uint64_t right[16];
  long double right87[16];
  for (int i = 0; i < 16; ++i) {
    right[i] = vector_sum(i);
    right87[i] = x87_sum(i);
  }
  crowd(procs(), "vector registers").run([&](int i) {
    // Half of them round upwards, which is part of the state too.
    const int mode = i % 2 == 0 ? FE_TONEAREST : FE_UPWARD;
    std::fesetround(mode);
    const bool same = vector_sum(i) == right[i];
    const bool kept = std::fegetround() == mode;
    std::fesetround(FE_TONEAREST);
    return same && kept && x87_sum(i) == right87[i];
  });
}

}  // namespace
}  // namespace weft::stress
