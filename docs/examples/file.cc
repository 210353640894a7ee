// SPDX-License-Identifier: Apache-2.0
// A file written in parts by several goroutines, and a pipe between two.
#include <array>
#include <cassert>
#include <cstdio>
#include <string>
#include <unistd.h>
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    const std::string path = "/tmp/weft_example_" + std::to_string(::getpid());
    {
      const weft::file f = weft::file::create(path);
      weft::scope s;
      for (int i = 0; i < 4; ++i)
        s.go([&f, i] { f.write_at(std::string(100, "abcd"[i]), i * 100); });
      s.wait();
      f.sync();
      std::array<char, 4> b;
      assert(f.read_at(std::span(b), 198) == 4 && std::string(b.data(), 4) == "bbcc");
      assert(f.size() == 400);
    }  // closed
    std::remove(path.c_str());
    try {
      (void)weft::file::open(path);
    } catch (const weft::path_error& e) {
      assert(e.what() == "open " + path + ": no such file or directory");
    }

    auto [r, w] = weft::file::pipe();
    weft::go([w = std::move(w)] { w.write_all("through the pipe"); });  // closes it at its end
    std::string got;
    std::array<char, 5> b;
    while (const std::size_t n = r.read_some(b)) got.append(b.data(), n);
    assert(got == "through the pipe");
  });
}
