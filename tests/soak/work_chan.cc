// SPDX-License-Identifier: Apache-2.0
// Channels: producers and consumers over channels of all capacities, selects with timeouts in both
// directions, a chain of filters. What went in must come out, once.
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <weft/chan.hpp>
#include <weft/select.hpp>
#include <weft/sync.hpp>

#include "soak/soak.h"

namespace weft::soak {
namespace {

using number = std::uint64_t;

constexpr number sum_to(number n) { return n * (n + 1) / 2; }

// Several send 1..n each, the last one closes, several range over it.
std::uint64_t producers_and_consumers(lane& l) {
  static constexpr int capacities[] = {0, 0, 1, 7, 128};
  const chan<number> c(capacities[l.r.below(std::size(capacities))]);
  const std::uint32_t producers = 1 + l.r.below(4), consumers = 1 + l.r.below(4);
  const number each = 100 + l.r.below(400);
  std::atomic<number> sum{0}, count{0};
  wait_group sending, receiving;
  for (std::uint32_t i = 0; i < producers; ++i) {
    sending.go([&c, each] {
      for (number v = 1; v <= each; ++v) c.send(v);
    });
  }
  for (std::uint32_t i = 0; i < consumers; ++i) {
    receiving.go([&] {
      number mine = 0, n = 0;
      for (const number v : c) {
        mine += v;
        ++n;
      }
      sum += mine;
      count += n;
    });
  }
  sending.wait();
  c.close();
  receiving.wait();
  l.check(count == producers * each, "a channel lost or doubled a value");
  l.check(sum == producers * sum_to(each), "the sum of a channel");
  bool threw = false;
  try {
    c.send(1);
  } catch (const closed_channel&) {
    threw = true;
  }
  l.check(threw && !c.recv(), "a closed channel");
  return 2 * producers * each;
}

// Values that own memory, over sends and receives that may give up.
std::uint64_t with_timeouts(lane& l) {
  const chan<std::string> c(static_cast<int>(l.r.below(3)));
  std::atomic<number> sent{0}, received{0}, gave_up{0};
  wait_group sending, receiving;
  for (int i = 0; i < 3; ++i) {
    sending.go([&, seed = l.r.next()] {
      rt::random r(seed);
      for (int k = 0; k < 60; ++k) {
        std::string text(1 + r.below(60), 'w');
        const std::size_t size = text.size();
        const auto patience = std::chrono::microseconds(r.below(300));
        if (c.send_for(std::move(text), patience) == send_status::ok) {
          sent += size;
        } else {
          ++gave_up;
          if (text.size() != size) sent += 1'000'000;  // taken all the same
        }
      }
    });
  }
  for (int i = 0; i < 2; ++i) {
    receiving.go([&, seed = l.r.next()] {
      rt::random r(seed);
      for (;;) {
        std::string text;
        const auto patience = std::chrono::microseconds(r.below(300));
        const recv_status s = c.recv_for(text, patience);
        if (s == recv_status::closed) break;
        if (s == recv_status::ok) received += text.size();
      }
    });
  }
  sending.wait();
  c.close();
  receiving.wait();
  l.check(sent == received, "values with timeouts");
  return 180;
}

// Values go round among three channels by selects that send, receive and time out; nothing is lost.
std::uint64_t selects(lane& l) {
  const chan<number> a, b(2), out(8);
  const chan<void> stop;
  wait_group forwarding, collecting;
  std::atomic<number> got{0}, dropped{0};
  const auto forward = [&](const chan<number>& from) {
    std::optional<number> held;
    for (bool on = true; on || held;) {
      if (held) {
        weft::select(weft::send(out, *held, [&] { held.reset(); }), weft::timeout(2ms));
      } else {
        weft::select(weft::recv(from, [&](std::optional<number> v) { held = v; }),
                     weft::recv(stop, [&] { on = false; }), weft::timeout(200us));
      }
    }
    for (number v = 0; from.try_recv(v) == recv_status::ok;) dropped += v;
  };
  forwarding.go([&] { forward(a); });
  forwarding.go([&] { forward(b); });
  collecting.go([&] {
    for (const number v : out) got += v;
  });
  number put = 0;
  const number n = 100 + l.r.below(200);
  selector s;
  number next = 0;
  for (number i = 1; i <= n; ++i) {
    next = i;
    if (l.chance(2)) {
      const int which = weft::select(weft::send(a, next), weft::send(b, next));
      l.check(which == 0 || which == 1, "the index of a select");
    } else {
      s.clear();
      s.send(b, next);
      s.send(a, next);
      s.send(chan<number>(nullptr), next);
      l.check(s.wait() <= 1, "a nil channel was ready");
    }
    put += i;
  }
  stop.close();
  forwarding.wait();
  out.close();
  collecting.wait();
  l.check(got + dropped == put, "the sum over the selects");
  l.check(weft::select(weft::recv(out), weft::otherwise()) == 0, "a closed channel is ready");
  return 2 * n;
}

// The sieve: a goroutine a prime, each passes on what its prime does not divide.
std::uint64_t sieve(lane& l) {
  constexpr int limit = test::slow ? 60 : 200;
  constexpr int right = test::slow ? 17 : 46;
  wait_group wg;
  chan<int> in(static_cast<int>(l.r.below(2)));
  wg.go([c = in] {
    for (int i = 2; i < limit; ++i) c.send(i);
    c.close();
  });
  int primes = 0;
  while (const std::optional<int> p = in.recv()) {
    ++primes;
    const chan<int> out(static_cast<int>(l.r.below(2)));
    wg.go([in, out, p = *p] {
      for (const int v : in) {
        if (v % p != 0) out.send(v);
      }
      out.close();
    });
    in = out;
  }
  wg.wait();
  l.check(primes == right, "the primes of the sieve");
  return static_cast<std::uint64_t>(limit) * 4;
}

}  // namespace

std::span<const workload> chan_workloads() {
  static constexpr workload all[] = {
      {"chan", 3, producers_and_consumers},
      {"chan_for", 2, with_timeouts},
      {"select", 2, selects},
      {"sieve", 1, sieve},
  };
  return all;
}

}  // namespace weft::soak
