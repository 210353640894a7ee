// SPDX-License-Identifier: Apache-2.0
// One P, and nobody gets stuck: calls that block the thread, announced and not, a loop that never
// gives way, a goroutine with a thread of its own, a thread of somebody else.
#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <weft/weft.hpp>

using namespace std::chrono_literals;

char read_one(int fd) {
  char c = 0;
  assert(::read(fd, &c, 1) == 1);
  return c;
}

int main() {
  weft::config one;
  one.procs = 1;
  return weft::run(one, [] {
    // A call that blocks the thread. blocking() announces it: its P is free at once.
    int fd[2];
    assert(::pipe(fd) == 0);
    auto announced = weft::async([&] { return weft::blocking([&] { return read_one(fd[0]); }); });
    weft::yield();  // it runs, and sleeps in the kernel
    assert(::write(fd[1], "a", 1) == 1);
    assert(announced.get() == 'a');

    // The same by a library that has never heard of us: its P is taken from it.
    std::mutex mu;
    std::condition_variable cv;
    bool ready = false;
    auto unannounced = weft::async([&] {
      std::unique_lock hold(mu);
      cv.wait(hold, [&] { return ready; });
    });
    weft::yield();  // it sleeps on a futex, with the only P; we are back as soon as that is noticed
    {
      const std::lock_guard hold(mu);
      ready = true;
    }
    cv.notify_one();
    unannounced.wait();

    // A loop without a call: it is stopped when its time is up and somebody waits.
    std::atomic<bool> stop{false};
    auto spinner = weft::async([&] {
      std::uint64_t turns = 0;
      while (!stop.load(std::memory_order_relaxed)) ++turns;
      return turns;
    });
    weft::sleep_for(1ms);
    stop = true;
    assert(spinner.get() > 0);

    // A goroutine that must stay on one thread: a GL context, a debugger's tracee, setns(2).
    auto locked = weft::async([] {
      const weft::os_thread_guard guard;
      const pid_t thread = ::gettid();
      for (int i = 0; i < 100; ++i) {
        weft::yield();
        if (::gettid() != thread) return false;
      }
      return true;
    });
    assert(locked.get());

    // A thread of somebody else uses channels as goroutines do.
    const weft::chan<std::string> c;
    std::thread foreign([&] { c.send("from a thread"); });
    assert(c.recv() == "from a thread");
    foreign.join();

    // More stack than a goroutine has, for one call.
    const std::size_t big = weft::on_system_stack([] {
      char frame[1024 * 1024];
      frame[0] = frame[sizeof frame - 1] = 1;
      return sizeof frame * static_cast<std::size_t>(frame[0]);
    });
    assert(big == 1024 * 1024);
    ::close(fd[0]);
    ::close(fd[1]);
  });
}
