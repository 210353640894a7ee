// SPDX-License-Identifier: Apache-2.0
// What leaves a goroutine ends the process with a report (SPN-04, SPN-08). Standard output has the
// id of the goroutine that does it; terminate handlers and code behind would show there too.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "weft/weft.hpp"

namespace fruit {
struct apple {
  int seeds = 5;
};
struct pear : std::exception {
  const char* what() const noexcept override { return "a pear"; }
};
struct stone : std::exception {
  const char* what() const noexcept override { return nullptr; }
};
template <class T, std::size_t N>
struct basket {};
}  // namespace fruit

namespace {

struct secret {};

void announce() { std::printf("%llu\n", static_cast<unsigned long long>(weft::goid())); }

__attribute__((noinline, no_sanitize("undefined", "address"))) void touch(int* p) { *p = 1; }
void (*volatile touched)(int*) = touch;

void leave_with(std::string_view what) {
  announce();
  if (what == "error") throw std::runtime_error("test");
  if (what == "derived") throw fruit::pear();
  if (what == "long") throw std::runtime_error(std::string(5000, 'x'));
  if (what == "int") throw 42;
  if (what == "string") throw "a string";
  if (what == "object") throw fruit::apple();
  if (what == "std-string") throw std::string("a string");
  if (what == "template") throw fruit::basket<fruit::apple, 3>();
  if (what == "pointer") throw static_cast<char***>(nullptr);
  if (what == "nullptr") throw nullptr;
  if (what == "anonymous") throw secret();
  if (what == "local") {
    struct local {};
    throw local();
  }
  if (what == "mute") throw fruit::stone();
  if (what == "in-a-cleanup") {
    struct cleanup {
      ~cleanup() { std::puts("cleanup"); }
    } c;
    throw std::runtime_error("test");
  }
  if (what == "fault") {
    weft::throw_on_fault(true);
    touched(nullptr);
  }
  if (what == "in-a-handler") {
    try {
      throw std::runtime_error("first");
    } catch (const std::exception&) {
      throw std::runtime_error("second");
    }
  }
  if (what == "nested") {
    try {
      try {
        throw std::runtime_error("first");
      } catch (...) {
        std::throw_with_nested(std::logic_error("second"));
      }
    } catch (...) {
      std::throw_with_nested(std::runtime_error("third"));
    }
  }
  if (what == "nested-in-a-handler") {
    try {
      try {
        throw std::runtime_error("first");
      } catch (...) {
        std::throw_with_nested(std::runtime_error("second"));
      }
    } catch (...) {
      throw std::runtime_error("third");
    }
  }
  if (what == "rethrown") {
    try {
      throw std::runtime_error("again");
    } catch (...) {
      throw;
    }
  }
  if (what == "rethrown-pointer") {
    try {
      throw std::runtime_error("again");
    } catch (...) {
      std::rethrow_exception(std::current_exception());
    }
  }
  if (what == "behind-a-handler") {  // that is over: nothing to tell
    try {
      throw std::runtime_error("first");
    } catch (...) {
    }
    throw std::runtime_error("second");
  }
  if (what == "beside-others") {
    const weft::chan<void> never;
    for (int i = 0; i < 2; ++i) weft::go([never] { never.recv(); });
    while (weft::debug::runtime_stats().waiting < 2) weft::yield();
    throw std::runtime_error("alone");
  }
  if (what == "after-goexit") {
    try {
      weft::goexit();
    } catch (...) {
      throw std::runtime_error("hello");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const std::string_view where = argc > 2 ? argv[2] : "go";
  std::setvbuf(stdout, nullptr, _IONBF, 0);  // a crash writes no buffers out
  std::set_terminate([] {
    std::puts("terminate handler");
    std::abort();
  });
  return weft::run([what, where] {
    if (where == "while-main-returns") {
      weft::wait_group wg;
      wg.add(1);
      weft::go([&wg] {
        struct cleanup {
          weft::wait_group& w;
          ~cleanup() {
            w.done();
            weft::yield();
          }
        } c{wg};
        throw std::runtime_error("crash");
      });
      wg.wait();
      return;
    }
    if (where == "go") {
      weft::go([what] { leave_with(what); });
      for (;;) weft::yield();
    }
    if (where == "scope") {  // never waited for: what its goroutine threw is nobody's
      announce();
      weft::scope s;
      s.go([what] { leave_with(what); });
    }
    std::puts("behind");
  });
}
