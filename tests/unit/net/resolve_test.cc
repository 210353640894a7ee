// SPDX-License-Identifier: Apache-2.0
// The resolver's queue, behind a name server that is silent: getaddrinfo is ours here.
#include <atomic>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <string>
#include <string_view>
#include <thread>

#include "sched/waiter.h"
#include "unit/sched/support.h"
#include "weft/context.hpp"
#include "weft/net.hpp"
#include "weft/sync.hpp"

namespace {

std::atomic<bool> silent{false};
std::atomic<int> held{0}, asked{0}, asked_in_vain{0};

}  // namespace

// Of names that begin with weft-; all others go to libc's.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** out) {
  using function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string_view n = name != nullptr ? name : "";
  if (!n.starts_with("weft-")) return real(name, service, hints, out);
  if (n == "weft-held") {
    ++held;
    while (silent) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --held;
  }
  if (n == "weft-wanted") ++asked;
  if (n == "weft-given-up") ++asked_in_vain;
  return EAI_NONAME;
}

namespace weft::net_test {
namespace {

// Looks name up and has no answer but this.
void expect(std::error_code why, const context& ctx, std::string_view name) {
  std::error_code ec;
  EXPECT_TRUE(net::resolve(ctx, name, "1", ec).empty());
  EXPECT_EQ(ec, why);
}

TEST(Resolve, WhatNobodyWaitsForIsNotAsked) {
  constexpr int threads = 32;  // as many as there are for lookups
  sched_test::run_on(2, [] {
    const auto [ctx, cancel] = with_cancel(background());
    silent = true;
    asked = asked_in_vain = 0;
    wait_group waiting, given_up;
    for (int i = 0; i < threads; ++i)
      waiting.go([] { expect(net::errc::no_such_host, background(), "weft-held"); });
    EXPECT_TRUE(test::eventually([] { return held == threads; }));
    const auto before = rt::errands.load();
    for (int i = 0; i < 10; ++i)
      given_up.go([&, &ctx = ctx] { expect(errc::canceled, ctx, "weft-given-up"); });
    waiting.go([] { expect(net::errc::no_such_host, background(), "weft-wanted"); });
    EXPECT_TRUE(test::eventually([&] { return rt::errands.load() == before + 11; }));  // queued
    cancel();
    given_up.wait();
    silent = false;
    waiting.wait();
    EXPECT_EQ(asked, 1);
  });
  EXPECT_TRUE(test::eventually([] { return rt::errands.load() == 0; }));
  EXPECT_EQ(asked_in_vain, 0);
}

}  // namespace
}  // namespace weft::net_test
