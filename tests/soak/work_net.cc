// SPDX-License-Identifier: Apache-2.0
// Sockets over the loopback, pipes and files: echoes with resets, half-closes and deadlines, what
// was sent is what comes back, and every descriptor is closed again.
#include <array>
#include <atomic>
#include <cstdint>
#include <fcntl.h>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <weft/file.hpp>
#include <weft/go.hpp>
#include <weft/net.hpp>
#include <weft/sync.hpp>
#include <weft/time.hpp>

#include "soak/soak.h"

namespace weft::soak {
namespace {

char at(std::size_t i) { return static_cast<char>('a' + i * 7 % 23); }

// Serves one connection until it ends, in whichever way.
void echo(const net::conn& c) {
  std::array<char, 2048> b;
  std::error_code ec;
  for (;;) {
    const std::size_t n = c.read_some(b, ec);
    if (ec || n == 0) break;
    c.write_all(std::string_view(b.data(), n), ec);
    if (ec) break;
  }
}

bool cut_off(std::error_code ec) {
  return ec == std::errc::connection_reset || ec == std::errc::broken_pipe ||
         ec == weft::errc::unexpected_eof;
}

// One client: some rounds, and one of the ways to end. Returns how many rounds there were.
std::uint64_t talk(rt::random& r, const net::conn& c, std::atomic<int>& wrong) {
  std::uint64_t rounds = 0;
  for (std::uint32_t k = 3 + r.below(15); k > 0; --k, ++rounds) {
    std::string text(1 + r.below(4000), '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = at(i + k);
    std::string back(text.size(), '\0');
    std::error_code ec;
    if (c.write_all(text, ec) != text.size() ||
        c.read_full(std::span<char>(back), ec) != text.size() || back != text)
      ++wrong;
    if (r.below(6) == 0) {  // nothing comes: the deadline does, and then it goes on
      c.set_read_deadline(clock::now() + std::chrono::microseconds(r.below(500)));
      char one = 0;
      if (c.read_some(std::span<char>(&one, 1), ec) != 0 || ec != weft::errc::deadline_exceeded)
        ++wrong;
      c.set_read_deadline((clock::time_point::max)());
    }
  }
  std::error_code ec;
  switch (r.below(4)) {
    case 0:  // the peer reads the end, and closes
      c.close_write(ec);
      if (char one = 0; c.read_some(std::span<char>(&one, 1), ec) != 0 || ec) ++wrong;
      break;
    case 1: {  // closed under somebody who reads
      wait_group reader;
      reader.go([&] {
        char one = 0;
        std::error_code e;
        if (c.read_some(std::span<char>(&one, 1), e) != 0 || e != weft::errc::closed) ++wrong;
      });
      if (r.below(2) == 0) weft::yield();
      c.close(ec);
      reader.wait();
      break;
    }
    default:
      break;
  }
  return rounds;
}

std::uint64_t serve(lane& l, const net::listener& li, std::string_view network) {
  std::atomic<int> wrong{0};
  std::atomic<std::uint64_t> rounds{0};
  wait_group servers, clients;
  servers.go([&] {
    std::error_code ec;
    for (;;) {
      net::conn c = li.accept(ec);
      if (ec) break;
      servers.go([c = std::move(c)] { echo(c); });
    }
    if (ec != weft::errc::closed) ++wrong;
  });
  const net::address where = li.addr();
  for (std::uint32_t i = 1 + l.r.below(5); i > 0; --i) {
    clients.go([&, seed = l.r.next()] {
      rt::random r(seed);
      std::error_code ec;
      const net::conn c = net::dial(network, where, ec);
      // A full queue of a Unix socket, or no port left over from those that are in TIME_WAIT.
      if (ec == std::errc::resource_unavailable_try_again ||
          ec == std::errc::address_not_available) {
        weft::sleep_for(1ms);
        return;
      }
      if (ec) {
        ++wrong;
        return;
      }
      // Mostly by a reset: a port that ends in TIME_WAIT is gone for a minute.
      if (network == "tcp" && r.below(4) != 0) c.set_linger(0);
      rounds += talk(r, c, wrong);
    });
  }
  clients.wait();
  li.close();
  servers.wait();
  l.check(wrong == 0, "a connection, its echo or its end");
  return rounds;
}

std::uint64_t tcp(lane& l) {
  const net::listener li = net::listen("tcp", "127.0.0.1:0");
  return serve(l, li, "tcp");
}

std::uint64_t unix_stream(lane& l) {
  const std::string name =
      "@weft-soak-" + std::to_string(::getpid()) + '-' + std::to_string(l.r.next());
  const net::listener li = net::listen("unix", name);
  return serve(l, li, "unix");
}

// The peer resets after k bytes: what was read before is right, and then comes the reset.
std::uint64_t resets(lane& l) {
  const net::listener li = net::listen("tcp", "127.0.0.1:0");
  for (int i = 0; i < 4; ++i) {
    const std::size_t k = l.r.below(300);
    wait_group wg;
    wg.go([&] {
      std::error_code ec;
      const net::conn c = li.accept(ec);
      if (ec) return;
      c.set_linger(0, ec);
      std::string text(k, '\0');
      for (std::size_t j = 0; j < k; ++j) text[j] = at(j);
      c.write_all(text, ec);
    });
    std::error_code ec;
    const net::conn c = net::dial("tcp", li.addr(), ec);
    if (ec == std::errc::address_not_available) {
      li.close();  // nobody comes
      wg.wait();
      return 0;
    }
    if (ec) {
      l.check(cut_off(ec), "a dial");  // it may see the reset already
      wg.wait();
      continue;
    }
    std::array<char, 64> b;
    std::size_t got = 0;
    while (const std::size_t n = c.read_some(b, ec)) {
      for (std::size_t j = 0; j < n; ++j) l.check(b[j] == at(got + j), "a byte before a reset");
      got += n;
    }
    l.check(got <= k && (!ec || cut_off(ec)), "a reset");
    wg.wait();
  }
  return 4;
}

std::uint64_t udp(lane& l) {
  const net::packet_conn a = net::listen_packet("udp", "127.0.0.1:0");
  const net::packet_conn b = net::listen_packet("udp", "127.0.0.1:0");
  wait_group wg;
  wg.go([&b] {
    std::array<char, 1500> buf;
    std::error_code ec;
    for (;;) {
      const auto [n, from] = b.read_from(std::span<char>(buf), ec);
      if (ec) break;
      b.write_to(std::string_view(buf.data(), n), from, ec);
    }
  });
  const net::address to = b.local_addr();
  std::uint64_t n = 0;
  for (; n < 20; ++n) {
    const std::string text(1 + l.r.below(1400), at(n));
    std::string back(1500, '\0');
    std::size_t got = 0;
    for (int attempt = 0; attempt < 50 && got == 0; ++attempt) {  // a datagram may be lost
      std::error_code ec;
      a.write_to(text, to, ec);
      a.set_read_deadline(clock::now() + 200ms);
      got = a.read_from(std::span<char>(back), ec).first;
      // One that was late is an answer to the question before.
      if (got != 0 && back[0] != text[0]) got = 0;
    }
    l.check(got == text.size() && back.compare(0, got, text) == 0, "a datagram");
  }
  b.close();
  wg.wait();
  return n;
}

std::uint64_t pipes(lane& l) {
  auto [out, in] = file::pipe();
  const std::size_t total = 1 + l.r.below(200'000);
  wait_group wg;
  wg.go([in = std::move(in), total] {
    std::string text(3000, '\0');
    for (std::size_t done = 0; done < total;) {
      const std::size_t n = std::min(text.size(), total - done);
      for (std::size_t i = 0; i < n; ++i) text[i] = at(done + i);
      in.write_all(std::string_view(text.data(), n));
      done += n;
    }
  });
  std::array<char, 5000> b;
  std::size_t got = 0;
  while (const std::size_t n = out.read_some(b)) {
    l.check(b[0] == at(got) && b[n - 1] == at(got + n - 1), "a byte out of a pipe");
    got += n;
  }
  l.check(got == total, "the bytes of a pipe");
  wg.wait();
  const auto [silent, open_end] = file::pipe();
  silent.set_deadline(clock::now() + 300us);
  std::error_code ec;
  l.check(silent.read_some(b, ec) == 0 && ec == errc::deadline_exceeded, "a pipe's deadline");
  return got / 3000 + 1;
}

// Gone from the directory as soon as it is open, so that nothing is left whatever happens.
std::uint64_t files(lane& l) {
  const std::string path = options.scratch + "/file-" + std::to_string(l.r.next());
  const file f = file::open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  ::unlink(path.c_str());
  constexpr std::size_t block = 1024;
  const std::uint32_t n = 4 + l.r.below(12);
  std::atomic<int> wrong{0};
  wait_group wg;
  for (std::uint32_t i = 0; i < n; ++i) {
    wg.go([&, i] {
      const std::string text(block, at(i));
      if (f.write_at(text, static_cast<std::int64_t>(i * block)) != block) ++wrong;
    });
  }
  wg.wait();
  if (l.chance(8)) f.sync();
  for (std::uint32_t i = 0; i < n; ++i) {
    wg.go([&, i] {
      std::array<char, block> b;
      if (f.read_at(std::span<char>(b), static_cast<std::int64_t>(i * block)) != block ||
          b[0] != at(i) || b[block - 1] != at(i))
        ++wrong;
    });
  }
  wg.wait();
  l.check(f.size() == static_cast<std::int64_t>(n * block) && wrong == 0, "a file");
  l.check(f.seek(0, SEEK_END) == static_cast<std::int64_t>(n * block), "the end of a file");
  f.close();
  std::error_code ec;
  f.close(ec);
  l.check(ec == errc::closed, "a file that is closed twice");
  return 2 * n;
}

}  // namespace

void open_what_stays() {
  const net::listener by_the_poller = net::listen("tcp", "127.0.0.1:0");
  const std::string path = options.scratch + "/synced";
  const file by_the_ring = file::open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  ::unlink(path.c_str());
  by_the_ring.sync();
}

std::span<const workload> net_workloads() {
  static constexpr workload all[] = {
      {"tcp", 2, tcp}, {"unix", 1, unix_stream}, {"reset", 1, resets},
      {"udp", 1, udp}, {"pipe", 1, pipes},       {"file", 1, files},
  };
  return all;
}

}  // namespace weft::soak
