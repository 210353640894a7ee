// SPDX-License-Identifier: Apache-2.0
// What the server can be asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include <weft/time.hpp>
#include "kv/resp.h"
#include "kv/store.h"

namespace kv {

struct service {
  store keys;
  std::atomic<std::uint64_t> commands{0};
  const weft::clock::time_point started = weft::clock::now();
  std::function<std::size_t()> clients;  // how many are connected
  std::size_t max_request = default_max_request;
};

// Appends the reply to args, which are not empty. False: the client wants to go.
bool execute(service& s, std::span<const std::string_view> args, reply& out);

}  // namespace kv
