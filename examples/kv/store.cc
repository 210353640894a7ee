// SPDX-License-Identifier: Apache-2.0
// Every operation holds the lock of one shard; none holds two.
#include "kv/store.h"

#include <charconv>
#include <mutex>

namespace kv {

store::map::iterator store::shard::erase(map::iterator i) {
  if (i->second.expires != never) --mortal;
  return keys.erase(i);
}

store::map::iterator store::shard::find(std::string_view key) {
  const auto i = keys.find(key);
  // No look at the clock for keys that live for ever.
  if (i == keys.end() || i->second.expires == never || weft::clock::now() < i->second.expires)
    return i;
  erase(i);
  return keys.end();
}

void store::shard::set_expiry(entry& e, time_point at) {
  mortal -= e.expires != never;
  mortal += at != never;
  e.expires = at;
}

bool store::set(std::string_view key, std::string_view value, when w,
                std::optional<time_point> expires) {
  shard& s = of(key);
  const std::lock_guard lock(s.mu);
  auto i = s.find(key);
  const bool there = i != s.keys.end();
  if (w != when::always && there != (w == when::present)) return false;
  if (there) {
    i->second.value.assign(value);
  } else {  // in one step: without memory for the value there is no key
    i = s.keys.try_emplace(std::string(key), entry{std::string(value)}).first;
  }
  if (expires) s.set_expiry(i->second, *expires);
  return true;
}

bool store::erase(std::string_view key) {
  shard& s = of(key);
  const std::lock_guard lock(s.mu);
  const auto i = s.find(key);
  if (i == s.keys.end()) return false;
  s.erase(i);
  return true;
}

bool store::contains(std::string_view key) {
  return read(key, [](std::string_view) {});
}

store::add_result store::add(std::string_view key, std::int64_t by, std::int64_t& result) {
  shard& s = of(key);
  const std::lock_guard lock(s.mu);
  auto i = s.find(key);
  std::int64_t n = 0;
  if (i != s.keys.end()) {
    const std::string& v = i->second.value;
    const auto [end, ec] = std::from_chars(v.data(), v.data() + v.size(), n);
    if (ec != std::errc() || end != v.data() + v.size()) return add_result::not_integer;
  }
  if (__builtin_add_overflow(n, by, &result)) return add_result::overflow;
  char digits[24];
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, result).ptr);
  if (i != s.keys.end()) {
    i->second.value = std::move(text);
  } else {  // as in set
    s.keys.try_emplace(std::string(key), entry{std::move(text)});
  }
  return add_result::ok;
}

bool store::expire(std::string_view key, time_point at) {
  shard& s = of(key);
  const std::lock_guard lock(s.mu);
  const auto i = s.find(key);
  if (i == s.keys.end()) return false;
  s.set_expiry(i->second, at);
  return true;
}

std::optional<store::time_point> store::expiry(std::string_view key) {
  shard& s = of(key);
  const std::lock_guard lock(s.mu);
  const auto i = s.find(key);
  if (i == s.keys.end()) return std::nullopt;
  return i->second.expires;
}

std::size_t store::size() {
  std::size_t n = 0;
  for (shard& s : shards_) {
    const std::lock_guard lock(s.mu);
    n += s.keys.size();
  }
  return n;
}

void store::clear() {
  for (shard& s : shards_) {
    map old;  // destroyed after the lock is given back
    const std::lock_guard lock(s.mu);
    old.swap(s.keys);
    s.mortal = 0;
  }
}

void store::sweep() {
  for (shard& s : shards_) {
    const std::lock_guard lock(s.mu);
    if (s.mortal == 0) continue;
    const time_point now = weft::clock::now();
    for (auto i = s.keys.begin(); i != s.keys.end();)
      i = i->second.expires <= now ? s.erase(i) : std::next(i);
  }
}

}  // namespace kv
