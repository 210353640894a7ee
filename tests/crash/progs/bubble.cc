// SPDX-License-Identifier: Apache-2.0
// BUB-07, BUB-08: what belongs to a bubble is used outside it or, with a second argument, in
// another one. Nothing may catch what follows.
#include <cstdio>
#include <mutex>
#include <string_view>

#include "weft/run.hpp"
#include "weft/select.hpp"
#include "weft/sync.hpp"
#include "weft/testing.hpp"
#include "weft/time.hpp"

namespace {

using namespace std::chrono_literals;

weft::chan<int> c = nullptr;
weft::timer t;
weft::mutex m;
weft::condition_variable cv;
weft::semaphore* s = nullptr;
weft::wait_group wg;

void misuse(std::string_view how) {
  if (how == "receive") c.recv();
  if (how == "try_recv") {
    int v = 0;
    c.try_recv(v);
  }
  if (how == "send") c.send(1);
  if (how == "try_send") (void)c.try_send(1);
  if (how == "close") c.close();
  if (how == "select") weft::select(weft::recv(c), weft::send(c, 1));
  if (how == "timer") t.c.recv();
  if (how == "reset") t.reset(1s);
  if (how == "stop") t.stop();
  if (how == "signal") cv.notify_one();
  if (how == "semaphore") s->release();
  if (how == "add") wg.add(1);
  if (how == "done") wg.done();
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  const std::string_view how = argc > 1 ? argv[1] : "";
  const bool in_another = argc > 2;
  weft::run([=] {
    const weft::chan<void> ready, never;
    weft::go([=] {
      weft::testing::bubble(1, [=] {
        c = weft::chan<int>(how == "try_send" ? 0 : 1);
        t = weft::timer(1h);
        weft::semaphore local(0);
        s = &local;
        if (how == "add" || how == "done") wg.add(1);
        if (how == "signal") {
          weft::go([] {
            std::unique_lock lock(m);
            cv.wait(lock);
          });
        }
        if (how == "semaphore") weft::go([] { s->acquire(); });
        weft::testing::wait();
        ready.close();
        never.recv();
      });
    });
    ready.recv();
    try {
      if (in_another) {
        weft::testing::bubble(2, [=] { misuse(how); });
      } else {
        misuse(how);
      }
    } catch (...) {
      std::puts("caught");
    }
    std::puts("behind");
  });
}
