// SPDX-License-Identifier: Apache-2.0
// A run ends beside goroutines that are in the middle of malloc, printf, dlopen or throw. Whatever
// lock of libc such a one held when its thread was stopped for good would be held for ever
// (DESIGN 4.3), and the next line of this program would hang.
//
//   left_behind KIND RUNS     says "alive" at the end
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <stdexcept>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "weft/go.hpp"
#include "weft/run.hpp"
#include "weft/time.hpp"

namespace {

using hog = void (*)();

void malloc_hog() {
  void* kept[32];
  for (std::size_t j = 0; j < 32; ++j) kept[j] = std::malloc(1100 + (j * 977) % 3000);
  for (void* p : kept) std::free(p);
}

void printf_hog() { std::fprintf(stderr, "%d %s %g\n", 42, "a line", 0.5); }

void dlopen_hog() {
  void* lib = ::dlopen("libresolv.so.2", RTLD_NOW);
  if (lib == nullptr) std::abort();
  if (::dlsym(lib, "ns_get16") == nullptr) std::abort();
  ::dlclose(lib);
}

void throw_hog() {
  try {
    throw std::runtime_error("again");
  } catch (const std::exception&) {
  }
}

// As long as a call takes, so that a thread is found outside of libc before long: until then it
// runs on, though its run is over.
void compute() {
  for (int i = 0; i < 20'000; ++i) asm volatile("");
}

hog find(std::string_view kind) {
  if (kind == "malloc") return malloc_hog;
  if (kind == "printf") return printf_hog;
  if (kind == "dlopen") return dlopen_hog;
  if (kind == "throw") return throw_hog;
  std::abort();
}

// Everything that takes one of libc's locks.
void use_libc() {
  std::fprintf(stderr, "after\n");
  malloc_hog();
  std::thread(malloc_hog).join();
  Dl_info info;
  if (::dladdr(reinterpret_cast<void*>(&std::puts), &info) == 0) std::abort();
  dlopen_hog();
  throw_hog();
  const pid_t child = ::fork();
  if (child == 0) {
    malloc_hog();
    ::_exit(7);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7) std::abort();
}

}  // namespace

int main(int, char** argv) {
  const hog work = find(argv[1]);
  const int runs = std::atoi(argv[2]);
  if (std::freopen("/dev/null", "w", stderr) == nullptr) std::abort();
  for (int i = 0; i < runs; ++i) {
    weft::config c;
    c.procs = 1 + i % 2;
    weft::run(c, [&] {
      for (int k = 0; k < 3; ++k) {
        weft::go([work] {
          for (;;) {
            work();
            compute();
          }
        });
      }
      weft::sleep_for(std::chrono::milliseconds(3 + i % 7));
    });
    use_libc();
  }
  std::puts("alive");
  return 0;  // through exit: handlers, stdio, destructors
}
