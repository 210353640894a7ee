// SPDX-License-Identifier: Apache-2.0
// The keys: a map in 64 shards, each with a lock of its own. Keys with a time to live go when they
// are next asked for, or with the next sweep().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <weft/sync.hpp>
#include <weft/time.hpp>

namespace kv {

class store {
 public:
  using time_point = weft::clock::time_point;
  static constexpr time_point never = time_point::max();

  enum class when { always, absent, present };

  // f(value) under the shard's lock, if the key is there.
  template <class F>
  bool read(std::string_view key, F f) {
    shard& s = of(key);
    const std::lock_guard lock(s.mu);
    const auto i = s.find(key);
    if (i == s.keys.end()) return false;
    f(std::string_view(i->second.value));
    return true;
  }
  // Whether it was set. expires: nullopt keeps what the key has.
  bool set(std::string_view key, std::string_view value, when w, std::optional<time_point> expires);
  bool erase(std::string_view key);
  bool contains(std::string_view key);

  enum class add_result { ok, not_integer, overflow };
  add_result add(std::string_view key, std::int64_t by, std::int64_t& result);

  bool expire(std::string_view key, time_point at);
  // nullopt: no such key.
  std::optional<time_point> expiry(std::string_view key);

  std::size_t size();
  void clear();
  void sweep();

 private:
  struct entry {
    std::string value;
    time_point expires = never;
  };
  struct hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const noexcept {
      return std::hash<std::string_view>()(s);
    }
  };
  using map = std::unordered_map<std::string, entry, hash, std::equal_to<>>;
  struct alignas(64) shard {
    weft::mutex mu;
    map keys;
    std::size_t mortal = 0;  // keys that expire

    map::iterator find(std::string_view key);  // one that is past its time is erased
    map::iterator erase(map::iterator i);
    void set_expiry(entry& e, time_point at);
  };
  // The map takes the low bits of the hash, the shards the high ones.
  shard& of(std::string_view key) { return shards_[hash()(key) >> 58]; }

  std::array<shard, 64> shards_;
};

}  // namespace kv
