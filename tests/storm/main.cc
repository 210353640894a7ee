// SPDX-License-Identifier: Apache-2.0
// weft_storm <program> <arguments>: runs a test program and sends SIGURG, SIGALRM and SIGPROF to
// each of its threads, a thousand times a second, from its start to its end. Ends as it ends.
//
// A process of its own: a thread in the program would be one more for the tests that count threads
// or wait for a deadlock. The program has handlers for them if WEFT_TEST_STORM is set
// (tests/main.cc). While one of them is not caught (not yet; or a test has put the default back for
// a while) it is not sent: it would kill.
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr int storm[] = {SIGURG, SIGALRM, SIGPROF};
constexpr long period_ns = 1'000'000;

std::uint64_t caught_by(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("SigCgt:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return 0;
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> all;
  DIR* d = ::opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
  while (const dirent* e = d != nullptr ? ::readdir(d) : nullptr) {
    if (const int tid = std::atoi(e->d_name); tid > 0) all.push_back(tid);
  }
  if (d != nullptr) ::closedir(d);
  return all;
}

// How many were sent.
std::uint64_t blow(pid_t pid) {
  const std::uint64_t caught = caught_by(pid);
  std::uint64_t sent = 0;
  for (const pid_t tid : threads_of(pid)) {
    for (const int sig : storm) {
      if ((caught >> (sig - 1) & 1) == 0) continue;
      sent += ::syscall(SYS_tgkill, pid, tid, sig) == 0 ? 1 : 0;
    }
  }
  return sent;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: weft_storm <program> <arguments>\n", stderr);
    return 2;
  }
  ::setenv("WEFT_TEST_STORM", "1", 1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execv(argv[1], argv + 1);
    std::perror(argv[1]);
    ::_exit(127);
  }
  std::uint64_t sent = 0;
  int status = 0;
  timespec next{};
  ::clock_gettime(CLOCK_MONOTONIC, &next);
  while (::waitpid(child, &status, WNOHANG) == 0) {
    sent += blow(child);
    next.tv_nsec += period_ns;
    if (next.tv_nsec >= 1'000'000'000) {
      next.tv_nsec -= 1'000'000'000;
      ++next.tv_sec;
    }
    ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, nullptr);
  }
  std::printf("weft_storm: %llu signals\n", static_cast<unsigned long long>(sent));
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::printf("weft_storm: ended by signal %d\n", WTERMSIG(status));
  return 128 + WTERMSIG(status);
}
