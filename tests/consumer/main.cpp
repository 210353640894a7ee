// The smallest weft program: one goroutine, waited for.
#include <cstdio>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    weft::scope s;
    s.go([] { std::puts("hello"); });
    s.wait();
    return 0;
  });
}
