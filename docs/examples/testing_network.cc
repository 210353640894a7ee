#include <cassert>
#include <cstdio>
#include <optional>
#include <string>
#include <weft/weft.hpp>

using namespace std::chrono_literals;
namespace net = weft::net;

std::string read_line(const net::conn& c) {
  std::string line;
  for (char next = 0; next != '\n'; line += next) c.read_full(std::span(&next, 1));
  return line;
}

// A question is a line, and so is its answer.
void serve(const net::listener& l) {
  const net::conn c = l.accept();
  for (int i = 0; i < 3; ++i) c.write_all("you said " + read_line(c));
}

// On a quiet machine one write is one read. Nobody has promised that.
std::string ask(const net::conn& c, const std::string& question) {
  c.write_all(question);
  char b[256];
  return {b, c.read_some(b)};
}
std::string ask_for_a_line(const net::conn& c, const std::string& question) {
  c.write_all(question);
  return read_line(c);
}

bool works(std::uint64_t seed, std::string (*ask)(const net::conn&, const std::string&)) {
  return weft::testing::bubble(seed, [=] {
    const weft::testing::network here({.max_delay = 20ms});
    const net::listener l = net::listen("tcp", "server:7");  // a name of this network's own
    weft::wait_group server;
    server.go([&] { serve(l); });
    const net::conn c = net::dial("tcp", "server:7");
    c.set_deadline(weft::clock::now() + 1min);  // of virtual time
    bool right = true;
    for (const char* q : {"one\n", "two\n", "three\n"})
      right = ask(c, q) == std::string("you said ") + q && right;
    server.wait();
    return right;
  });
}

int main() {
  std::optional<std::uint64_t> bad;
  for (std::uint64_t seed = 0; seed < 100 && !bad; ++seed) {
    if (!works(seed, ask)) bad = seed;
  }
  assert(bad);
  std::printf("an answer in two parts with seed %ju\n", static_cast<std::uintmax_t>(*bad));
  for (int again = 0; again < 20; ++again) assert(!works(*bad, ask));
  for (std::uint64_t seed = 0; seed < 100; ++seed) assert(works(seed, ask_for_a_line));
}
