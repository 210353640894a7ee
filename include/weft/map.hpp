// SPDX-License-Identifier: Apache-2.0
// concurrent_map: a hash map whose members may all run concurrently. Go's sync.Map.
//
//   weft::concurrent_map<std::string, int> hits;
//   hits.store("a", 1);
//   if (auto n = hits.load("a")) use(*n);
//
// Keys and values are copied in and out; nobody holds a reference into the map. Each key lives in
// one of some shards, by its hash, each with a lock that readers share. Hash, comparison, copies
// and destructors of keys and values run under that lock, and so must not use the same map; the
// function given to range() runs under none, and may.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <weft/sync.hpp>

namespace weft {

template <class K, class V, class Hash = std::hash<K>, class Equal = std::equal_to<K>>
requires std::copy_constructible<K> && std::copy_constructible<V>
class concurrent_map {
 public:
  using key_type = K;
  using mapped_type = V;

  concurrent_map() = default;  // if Hash and Equal have such a constructor
  explicit concurrent_map(const Hash& hash, const Equal& equal = Equal())
      : hash_(hash), shards_(make_shards(hash, equal, std::make_index_sequence<shard_count>())) {}
  concurrent_map(const concurrent_map&) = delete;
  concurrent_map& operator=(const concurrent_map&) = delete;

  std::optional<V> load(const K& key) const {
    const shard& s = shard_of(key);
    const std::shared_lock hold(s.mu);
    const auto it = s.map.find(key);
    return it == s.map.end() ? std::nullopt : std::optional<V>(it->second);
  }
  bool contains(const K& key) const {
    const shard& s = shard_of(key);
    const std::shared_lock hold(s.mu);
    return s.map.find(key) != s.map.end();
  }
  void store(K key, V value) { (void)swap(std::move(key), std::move(value)); }
  // What was there before.
  std::optional<V> swap(K key, V value) {
    shard& s = shard_of(key);
    const std::lock_guard hold(s.mu);
    const auto [it, added] = s.map.try_emplace(std::move(key), std::move(value));
    if (added) return std::nullopt;
    return std::exchange(it->second, std::move(value));  // try_emplace has not moved from it
  }
  // What is there now, and whether it was there before.
  std::pair<V, bool> load_or_store(K key, V value) {
    shard& s = shard_of(key);
    {
      const std::shared_lock hold(s.mu);
      if (const auto it = s.map.find(key); it != s.map.end()) return {it->second, true};
    }
    const std::lock_guard hold(s.mu);
    const auto [it, added] = s.map.try_emplace(std::move(key), std::move(value));
    return {it->second, !added};
  }
  // Only if `old` is there.
  bool compare_and_swap(const K& key, const V& old, V value) requires std::equality_comparable<V> {
    shard& s = shard_of(key);
    const std::lock_guard hold(s.mu);
    const auto it = s.map.find(key);
    if (it == s.map.end() || !(it->second == old)) return false;
    it->second = std::move(value);
    return true;
  }
  bool compare_and_erase(const K& key, const V& old) requires std::equality_comparable<V> {
    shard& s = shard_of(key);
    const std::lock_guard hold(s.mu);
    const auto it = s.map.find(key);
    if (it == s.map.end() || !(it->second == old)) return false;
    s.map.erase(it);
    return true;
  }
  std::optional<V> load_and_erase(const K& key) {
    shard& s = shard_of(key);
    const std::lock_guard hold(s.mu);
    const auto it = s.map.find(key);
    if (it == s.map.end()) return std::nullopt;
    std::optional<V> was(std::move(it->second));
    s.map.erase(it);
    return was;
  }
  bool erase(const K& key) {
    shard& s = shard_of(key);
    const std::lock_guard hold(s.mu);
    return s.map.erase(key) != 0;
  }
  void clear() {
    for (shard& s : shards_) {
      const std::lock_guard hold(s.mu);
      s.map.clear();
    }
  }

  // f(key, value) for each; f may give false to end it. No key comes twice, and one that stays all
  // the time comes once. What is stored or erased meanwhile, by f too, may show or not.
  template <class F>
  requires std::invocable<F&, const K&, const V&>
  void range(F f) const {
    std::vector<std::pair<K, V>> part;
    for (const shard& s : shards_) {
      part.clear();
      {
        const std::shared_lock hold(s.mu);
        part.assign(s.map.begin(), s.map.end());
      }
      for (const auto& [key, value] : part) {
        if constexpr (std::is_convertible_v<std::invoke_result_t<F&, const K&, const V&>, bool>) {
          if (!std::invoke(f, key, value)) return;
        } else {
          std::invoke(f, key, value);
        }
      }
    }
  }

 private:
  using table = std::unordered_map<K, V, Hash, Equal>;
  struct alignas(64) shard {
    mutable shared_mutex mu;
    table map;
  };
  static constexpr int shard_bits = 5;
  static constexpr std::size_t shard_count = std::size_t{1} << shard_bits;
  using shards = std::array<shard, shard_count>;

  // In place: neither is a shard moved nor a hash assigned.
  static shard make_shard(std::size_t, const Hash& hash, const Equal& equal) {
    return {{}, table(0, hash, equal)};
  }
  template <std::size_t... I>
  static shards make_shards(const Hash& hash, const Equal& equal, std::index_sequence<I...>) {
    return {{make_shard(I, hash, equal)...}};
  }

  // The table takes the low bits of the hash, which std::hash of a number leaves as they are; the
  // shard takes the high bits of a product.
  std::size_t index_of(const K& key) const {
    const auto h = static_cast<std::uint64_t>(hash_(key));
    return static_cast<std::size_t>(h * 0x9e37'79b9'7f4a'7c15ULL >> (64 - shard_bits));
  }
  const shard& shard_of(const K& key) const { return shards_[index_of(key)]; }
  shard& shard_of(const K& key) { return shards_[index_of(key)]; }

  [[no_unique_address]] Hash hash_;
  shards shards_;
};

}  // namespace weft
