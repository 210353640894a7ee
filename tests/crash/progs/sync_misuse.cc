// SPDX-License-Identifier: Apache-2.0
// SYN-02: unlocking what is not locked, on a goroutine or, with a second argument, on a plain
// thread. Nothing may catch what follows.
#include <cstdio>
#include <string_view>

#include "weft/run.hpp"
#include "weft/sync.hpp"

namespace {

void misuse(std::string_view how) {
  weft::mutex m;
  weft::shared_mutex rw;
  if (how == "Mutex.Unlock") m.unlock();
  if (how == "Mutex.Unlock2") {
    m.lock();
    m.unlock();
    m.unlock();
  }
  if (how == "RWMutex.Unlock") rw.unlock();
  if (how == "RWMutex.Unlock2") {
    rw.lock_shared();
    rw.unlock();
  }
  if (how == "RWMutex.Unlock3") {
    rw.lock();
    rw.unlock();
    rw.unlock();
  }
  if (how == "RWMutex.RUnlock") rw.unlock_shared();
  if (how == "RWMutex.RUnlock2") {
    rw.lock();
    rw.unlock_shared();
  }
  if (how == "RWMutex.RUnlock3") {
    rw.lock_shared();
    rw.unlock_shared();
    rw.unlock_shared();
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  const std::string_view how = argc > 1 ? argv[1] : "";
  const auto f = [how] {
    try {
      misuse(how);
    } catch (...) {
      std::puts("caught");
    }
    std::puts("behind");
  };
  if (argc > 2) {
    f();
  } else {
    weft::run(f);
  }
}
