// SPDX-License-Identifier: Apache-2.0
// A program for the tool `weft` to look at. Says `ready` when it is as its argument wants it.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <unistd.h>

#include "weft/weft.hpp"

namespace {

weft::chan<int> never;

[[gnu::noinline]] void waits_here() {
  (void)never.recv();
  asm volatile("");
}

void say(const std::string& line) {
  if (::write(1, (line + "\n").data(), line.size() + 1) < 0) ::_exit(3);
}

// In a call that blocks from the moment that it is said.
void say_until_stdin_closes(const std::string& line) {
  weft::blocking([&] {
    say(line);
    char c = 0;
    return ::read(0, &c, 1);
  });
}

// A thread names itself when it first runs, and by its name the tool knows the monitor.
bool monitor_is_there() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "weft-sysmon") return true;
  }
  return false;
}

void park(bool asks) {
  weft::go({.name = "one who waits"}, waits_here);
  while (!monitor_is_there()) weft::yield();
  while (weft::debug::runtime_stats().waiting < 1) weft::yield();
  say_until_stdin_closes(asks ? weft::debug::attach() : "ready");
}

[[noreturn]] void busy() {
  const auto loop = [] {
#if defined(WEFT_TSAN)  // runs a handler only in a call that it knows
    for (;;) (void)std::chrono::steady_clock::now();
#else
    for (;;) asm volatile("");
#endif
  };
  for (int i = 0; i < 4; ++i) weft::go(loop);
  say("ready");
  loop();
  ::_exit(3);
}

// No report: the thread could still send, for all that anybody knows.
void hang() {
  std::thread([] {
    for (;;) ::pause();
  }).detach();
  say("ready");
  waits_here();
}

// All that could be mistaken for a deadlock: main waits for the world, which somebody looks at.
void resize() {
  say("ready");
  for (int i = 0; i < 20'000; ++i) weft::set_procs(1 + i % 2);
}

void fork_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  say_until_stdin_closes(std::to_string(child));
}

}  // namespace

#if defined(WEFT_ASAN)
// What the goroutines own that are left behind is never destroyed.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();  // NOLINT
extern "C" int __lsan_is_turned_off() { return 1; }                            // NOLINT
#endif

int main(int, char** argv) {
  const std::string how = argv[1];
  weft::config c = weft::config::from_env();
  c.procs = 2;
  return weft::run(c, [&] {
    if (how == "park" || how == "ask") park(how == "ask");
    if (how == "busy") busy();
    if (how == "hang") hang();
    if (how == "resize") resize();
    if (how == "fork") fork_child();
    if (how == "deadlock") waits_here();
  });
}
