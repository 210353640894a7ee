// SPDX-License-Identifier: Apache-2.0
// weft_soak: everything at once, in one process, for as long as it is told (`make soak HOURS=n`).
//
// The time is cut into phases, each a run() of its own: all workloads (work_*.cc) go on in their
// lanes at once until the phase is over, their goroutines must all be gone, and what the run leaves
// behind on purpose stays. A thread audits at random moments, another watches that every workload
// moves on (watch.cc), a third knows nothing of phases (outsider.cc). After a warm-up the process
// must not grow any more (gauges.cc). What the lanes draw comes from the seed; how they interleave
// does not. Status 0 only if all held.
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <getopt.h>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <weft/debug.hpp>
#include <weft/go.hpp>
#include <weft/run.hpp>
#include <weft/select.hpp>
#include <weft/signal.hpp>
#include <weft/sync.hpp>
#include <weft/time.hpp>

#include "soak/gauges.h"
#include "soak/soak.h"
#include "soak/watch.h"
#include "support/leaks.h"

namespace weft::soak {

settings options;
counts counted;

namespace {

std::atomic<std::uint64_t> failures{0};
const chan<void>& failure_channel() {
  static const auto* c = new chan<void>;
  return *c;
}

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) { return rt::random(a ^ (b << 32)).next(); }

}  // namespace

void fail(const std::string& what) {
  const std::uint64_t before = failures.fetch_add(1);
  if (before < 20) {
    std::printf("FAILED: %s\n", what.c_str());
    std::fflush(stdout);
  }
  if (before == 0) failure_channel().close();
}
bool failed() noexcept { return failures != 0; }
recv_chan<void> failure() { return failure_channel(); }

void audit(const char* where) {
  const int broken = debug::audit();  // says itself what is broken
  ++counted.audits;
  if (broken != 0) fail(std::to_string(broken) + " invariants broken in an audit " + where);
}

std::size_t hunt_leaks() {
  const auto leaks = debug::find_leaks();
  ++counted.leak_hunts;
  for (const debug::leak& leak : leaks) {
    ++counted.leaks_found;
    if (leak.name != leaky_name)
      fail("find_leaks() reported one that is not: " + leak.reason + '\n' + leak.trace);
  }
  return leaks.size();
}

void raise_to(std::atomic<std::int64_t>& worst, std::int64_t v) noexcept {
  std::int64_t w = worst.load(std::memory_order_relaxed);
  while (v > w && !worst.compare_exchange_weak(w, v, std::memory_order_relaxed)) {
  }
}

void lane::step() {
  const std::int64_t before = nanotime();
  try {
    tally_.operations += tally_.what->step(*this);
  } catch (const std::exception& e) {
    complain(e.what());
  }
  ++tally_.steps;
  raise_to(tally_.worst, nanotime() - before);
}

void lane::complain(const char* what) const { fail(std::string(tally_.what->name) + ": " + what); }

namespace {

constexpr int proc_counts[] = {1, 2, 3, 16};
constexpr std::int64_t patience = 10 * second;  // with what a busy machine has not come to yet

class soak {
 public:
  soak() : tallies_(count()), stop_signals_({SIGINT, SIGTERM}) {
    std::size_t i = 0;
    each([&](const workload& w) { tallies_[i++].what = &w; });
    phase_seconds_ = std::clamp(options.seconds / 30, 1.0, 60.0);
    warm_up_ = options.seconds >= 30 ? 3 : 1;
  }

  int operator()() {
    const std::int64_t begin = nanotime();
    const std::int64_t end = begin + static_cast<std::int64_t>(options.seconds * second);
    std::printf("soak: seed %llu, %.0f s in phases of %.0f s, of which %d to warm up, %s Ps\n",
                static_cast<unsigned long long>(options.seed), options.seconds, phase_seconds_,
                warm_up_, options.procs != 0 ? std::to_string(options.procs).c_str() : "1 to 16");
    std::fflush(stdout);
    start_outsider(mixed(options.seed, 1));
    {
      const watch w(tallies_, mixed(options.seed, 2));
      do phase(end);
      while (nanotime() < end && !failed() && !interrupted_);
    }
    stop_outsider();
    const double seconds = static_cast<double>(nanotime() - begin) / second;
    print_report(tallies_, seconds, first_, last_);
    // What hogs are for; a run of seconds on a busy machine may do without.
    if (seconds > 60 && debug::runtime_stats().preemptions == 0) fail("nobody was ever preempted");
    std::printf("%-24s %s%s; seed %llu\n", "verdict", failed() ? "FAILED" : "all held",
                interrupted_ ? ", ended early by a signal" : "",
                static_cast<unsigned long long>(options.seed));
    return failed() ? 1 : 0;
  }

 private:
  template <class F>
  static void each(F f) {
    for (const auto part : {chan_workloads(), sync_workloads(), time_workloads(), life_workloads(),
                            net_workloads(), thread_workloads(), look_workloads()}) {
      for (const workload& w : part) f(w);
    }
  }
  static std::size_t count() {
    std::size_t n = 0;
    each([&n](const workload&) { ++n; });
    return n;
  }

  void phase(std::int64_t end) {
    const std::uint64_t number = counted.phases;
    rt::random r(mixed(options.seed, 100 + number));
    config c = config::from_env();
    c.procs = options.procs;
    // The first one has the most threads.
    if (c.procs == 0) c.procs = number == 0 ? 16 : proc_counts[r.below(std::size(proc_counts))];
    const std::int64_t until =
        std::min(end, nanotime() + static_cast<std::int64_t>(phase_seconds_ * second));
    leavings left(r.next());
    const auto whole = [&] { run(c, [&] { inside(until, r, left); }); };
    // From whichever thread.
    if (r.below(3) == 0) {
      std::thread(whole).join();
    } else {
      whole();
    }
    left.clean_up();
    if (num_goroutines() != 0) fail("goroutines are counted though no run is on");
    audit("between two runs");
    ++counted.phases;
    judge();
  }

  // The phase's main.
  void inside(std::int64_t until, rt::random& r, leavings& left) {
    std::atomic<bool> over{false};
    wait_group lanes;
    // One that leaks, in sight of the leak hunts. While plain threads run the finder is in doubt
    // about a channel, and says nothing; about the nil channel it is sure.
    const std::size_t leaks = r.below(2);
    const bool sure = r.below(2) == 0;
    if (leaks != 0) {
      test::goroutines_are_left_behind = true;
      go({.name = leaky_name}, [sure] { (void)(sure ? chan<int>(nullptr) : chan<int>()).recv(); });
      ++counted.left_parked;
    }
    open_what_stays();
    enter(stage::working);
    for (tally& t : tallies_) {
      for (int i = 0; i < t.what->lanes; ++i) {
        lanes.go([&t, &over, seed = r.next()] {
          lane l(t, seed);
          do l.step();  // on a busy machine the phase may be over before it begins
          while (!over);
        });
      }
    }
    weft::select(weft::recv(failure()),
                 weft::recv(stop_signals_.c, [&](std::optional<int>) { interrupted_ = true; }),
                 weft::timeout(std::chrono::nanoseconds(until - nanotime())));
    enter(stage::draining);
    over = true;
    lanes.wait();
    while (num_goroutines() > 1 + leaks) weft::yield();  // those who are done but not yet gone
    audit("at the end of a phase");
    // While a thread of the runtime begins or ends the finder is in doubt: it is asked again.
    std::size_t found = hunt_leaks();
    for (const std::int64_t late = nanotime() + patience;
         found == 0 && leaks != 0 && sure && nanotime() < late; found = hunt_leaks())
      weft::sleep_for(std::chrono::milliseconds(5));
    if (found == 0 && leaks != 0 && sure) fail("find_leaks() missed one");
    left.leave();
    enter(stage::between);
  }

  void judge() {
    give_back();
    const int n = static_cast<int>(counted.phases);
    last_ = look_at_process();
    // What was closed or has ended may take its thread a moment more; a leak stays.
    for (const std::int64_t late = nanotime() + patience;
         n > warm_up_ && !grown().empty() && nanotime() < late; last_ = look_at_process())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (n <= warm_up_) {
      first_ = last_;
      first_parked_ = counted.left_parked;
      first_on_threads_ = counted.left_on_threads;
      return;
    }
    if (!grown().empty()) fail("after phase " + std::to_string(n) + ", " + grown());
  }
  std::string grown() const {
    return growth(first_, last_, counted.left_parked - first_parked_,
                  counted.left_on_threads - first_on_threads_);
  }

  std::vector<tally> tallies_;
  signals stop_signals_;
  double phase_seconds_;
  int warm_up_;  // phases
  bool interrupted_ = false;
  gauges first_, last_;
  std::uint64_t first_parked_ = 0, first_on_threads_ = 0;
};

// -- the command line

constexpr const char* usage =
    "weft_soak: every part of weft at once, for hours, audited and measured\n"
    "\n"
    "  --hours=N     how long; a fraction will do (1)\n"
    "  --seconds=N   the same in seconds\n"
    "  --seed=N      what the workloads draw from (random; printed)\n"
    "  --procs=N     that many Ps throughout (another number each phase, and within it)\n"
    "  --stall=N     seconds after which a workload that stands still has failed (30)\n"
    "  --line=N      seconds between two lines of the report (60)\n"
    "  --help\n"
    "\n"
    "Status: 0 all held, 1 something did not, 2 the command line or a fatal error.\n";

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "weft_soak: %s\nweft_soak --help says what there is.\n", why.c_str());
  std::exit(2);
}

double positive(const char* name, const char* text) {
  char* end = nullptr;
  const double v = std::strtod(text, &end);
  if (end == text || *end != '\0' || !std::isfinite(v) || v <= 0 || v > 1e8)
    refuse(std::string("--") + name + ": '" + text + "' is no positive number");
  return v;
}

std::uint64_t whole(const char* name, const char* text, std::uint64_t most) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long v = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || *text == '-' || v > most)
    refuse(std::string("--") + name + ": '" + text + "' is no whole number from 0 to " +
           std::to_string(most));
  return v;
}

void read_arguments(int argc, char** argv) {
  static constexpr option known[] = {
      {"hours", required_argument, nullptr, 'h'}, {"seconds", required_argument, nullptr, 's'},
      {"seed", required_argument, nullptr, 'r'},  {"procs", required_argument, nullptr, 'p'},
      {"stall", required_argument, nullptr, 't'}, {"line", required_argument, nullptr, 'l'},
      {"help", no_argument, nullptr, '?'},        {nullptr, 0, nullptr, 0}};
  options.seed = std::random_device()();
  if (test::slow) options.stall *= 4;
  ::opterr = 0;
  for (int index = 0, c = 0; (c = ::getopt_long(argc, argv, ":", known, &index)) != -1;) {
    switch (c) {
      case 'h':
        options.seconds = 3600 * positive("hours", ::optarg);
        break;
      case 's':
        options.seconds = positive("seconds", ::optarg);
        break;
      case 'r':
        options.seed = whole("seed", ::optarg, UINT64_MAX);
        break;
      case 'p':
        options.procs = static_cast<int>(whole("procs", ::optarg, 1024));
        break;
      case 't':
        options.stall = positive("stall", ::optarg);
        break;
      case 'l':
        options.line = positive("line", ::optarg);
        break;
      case ':':
        refuse(std::string(argv[::optind - 1]) + " needs a value");
      default:
        if (std::strcmp(argv[::optind - 1], "--help") != 0)
          refuse(std::string("what is ") + argv[::optind - 1] + '?');
        std::fputs(usage, stdout);
        std::exit(0);
    }
  }
  if (::optind < argc) refuse(std::string("what is ") + argv[::optind] + '?');
}

int soak_main(int argc, char** argv) {
  read_arguments(argc, argv);
  options.scratch = std::filesystem::temp_directory_path() / "weft-soak-XXXXXX";
  if (::mkdtemp(options.scratch.data()) == nullptr)
    refuse(options.scratch + ": " + std::strerror(errno));
  const int status = soak()();
  std::error_code ignored;
  std::filesystem::remove_all(options.scratch, ignored);
  return status;
}

}  // namespace
}  // namespace weft::soak

int main(int argc, char** argv) { return weft::soak::soak_main(argc, argv); }
