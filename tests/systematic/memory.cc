// SPDX-License-Identifier: Apache-2.0
// See memory.h. Called by the engine only, on whatever stack it is on.
#include "systematic/memory.h"

#include <algorithm>
#include <cstring>

namespace systematic {

memory the_memory;

void clock_vector::join(const clock_vector& o) noexcept {
  for (std::size_t i = 0; i < at.size(); ++i) at[i] = std::max(at[i], o.at[i]);
}

void coherence::join(const coherence& o) noexcept {
  used = std::max(used, o.used);
  for (std::size_t i = 0; i < static_cast<std::size_t>(o.used); ++i)
    at[i] = std::max(at[i], o.at[i]);
}

void coherence::raise(int l, std::uint16_t to) noexcept {
  used = std::max(used, l + 1);
  auto& a = at[static_cast<unsigned>(l)];
  a = std::max(a, to);
}

void memory::reset() noexcept {
  used_ = 0;
  index_.clear();
  s_ = {};
}

void memory::begin_threads(int n) noexcept {
  // Everybody has seen the newest of everything.
  for (std::size_t l = 0; l < used_; ++l) {
    location& p = places_[l];
    p.stores.front() = p.stores.back();
    p.stores.resize(1);
    p.stores.front().carries = {};
    p.made_by = -1;
    p.used_at = {};
  }
  s_ = {};
  for (int t = 0; t < n; ++t) {
    thread_memory& m = thread(t);
    m.now = m.at_acquire_fence = m.released = {};
    m.now.happened.at[static_cast<unsigned>(t)] = 1;
    m.stale = {};
    m.looked_at.clear();
    m.before.clear();
  }
}

int memory::known(const void* at) const noexcept {
  const auto i = index_.find(at);
  return i == index_.end() ? -1 : i->second;
}

int memory::find(const void* at, std::size_t size) noexcept {
  const auto [i, fresh] = index_.try_emplace(at, static_cast<int>(used_));
  if (!fresh) return i->second;
  if (used_ == max_locations) fail("more atomics than the checker has room for");
  if (used_ == places_.size()) places_.emplace_back();
  location& p = places_[used_++];
  p.at = const_cast<void*>(at);
  p.size = size;
  p.alive = true;
  p.made_by = -1;
  p.used_at = {};
  p.stores.clear();
  std::uint64_t value = 0;
  std::memcpy(&value, at, size);
  p.stores.push_back({value, {}, -1});
  return i->second;
}

int memory::newest(int l) const noexcept {
  return static_cast<int>(places_[static_cast<unsigned>(l)].stores.size()) - 1;
}

std::uint64_t memory::newest_value(int l) const noexcept {
  return places_[static_cast<unsigned>(l)].stores.back().value;
}

int memory::oldest_visible(int t, int l, order o, int stale_limit) const noexcept {
  const thread_memory& m = threads_[static_cast<unsigned>(t)];
  int first = m.now.seen.of(l);
  if (o == order::seq_cst) first = std::max<int>(first, s_.of(l));
  if (first < newest(l) && m.stale[static_cast<unsigned>(l)] >= stale_limit) ++first;
  return first;
}

// What a load learns.
void memory::see(int t, int l, int which, order o) noexcept {
  thread_memory& m = thread(t);
  auto& stale = m.stale[static_cast<unsigned>(l)];
  if (which == newest(l) || which != m.now.seen.of(l)) stale = 0;
  if (which != newest(l)) ++stale;
  m.now.seen.raise(l, static_cast<std::uint16_t>(which));
  const view& carried = (*this)[l].stores[static_cast<unsigned>(which)].carries;
  (acquires(o) ? m.now : m.at_acquire_fence).join(carried);
  if (o == order::seq_cst) s_.raise(l, static_cast<std::uint16_t>(which));
}

void memory::write(int t, int l, std::uint64_t value, order o, const view* onwards) noexcept {
  thread_memory& m = thread(t);
  location& p = (*this)[l];
  const auto place = static_cast<std::uint16_t>(p.stores.size());
  m.now.seen.raise(l, place);
  m.stale[static_cast<unsigned>(l)] = 0;
  store_record r{value, releases(o) ? m.now : m.released, t};
  if (onwards != nullptr) r.carries.join(*onwards);
  p.stores.push_back(r);
  if (o == order::seq_cst) s_.raise(l, place);
  std::memcpy(p.at, &value, p.size);
}

void memory::looked(int t, int l, std::uint64_t value) noexcept {
  auto& seen = thread(t).looked_at;
  const auto old =
      std::find_if(seen.begin(), seen.end(), [l](const auto& s) { return s.first == l; });
  if (old != seen.end()) seen.erase(old);
  seen.emplace_back(l, value);
}

std::uint64_t memory::load(int t, int l, int which, order o) noexcept {
  see(t, l, which, o);
  const std::uint64_t value = (*this)[l].stores[static_cast<unsigned>(which)].value;
  looked(t, l, value);
  return value;
}

void memory::store(int t, int l, std::uint64_t value, order o) noexcept {
  write(t, l, value, o, nullptr);
}

void memory::modify(int t, int l, std::uint64_t value, order o) noexcept {
  see(t, l, newest(l), o);
  // One that changes nothing, as of a lock that is held, is a look too.
  if ((*this)[l].stores.back().value == value) looked(t, l, value);
  const view onwards = (*this)[l].stores.back().carries;
  write(t, l, value, o, &onwards);
}

void memory::fence(int t, order o) noexcept {
  thread_memory& m = thread(t);
  if (acquires(o)) m.now.join(m.at_acquire_fence);
  if (o == order::seq_cst) {
    m.now.seen.join(s_);
    s_.join(m.now.seen);
  }
  if (releases(o)) m.released = m.now;
}

bool memory::can_relax(int t) const noexcept {
  const thread_memory& m = threads_[static_cast<unsigned>(t)];
  return m.looked_at != m.before ||
         std::any_of(m.looked_at.begin(), m.looked_at.end(),
                     [&](const auto& s) { return newest_value(s.first) != s.second; });
}

void memory::relax(int t) noexcept {
  thread_memory& m = thread(t);
  for (const auto& s : m.looked_at)
    m.now.seen.raise(s.first, static_cast<std::uint16_t>(newest(s.first)));
  m.before.swap(m.looked_at);
  m.looked_at.clear();
}

void memory::construct(int t, int l, std::uint64_t value) noexcept {
  location& p = (*this)[l];
  p.alive = true;
  p.made_by = t;
  p.made_at = t < 0 ? 0 : now(t).happened.at[static_cast<unsigned>(t)];
  p.used_at = {};
  if (t < 0) {
    p.stores.assign(1, {value, {}, -1});
    return;
  }
  // A plain write: nobody may see what was there before.
  write(t, l, value, order::relaxed, nullptr);
  p.stores.back().carries = {};
}

const char* memory::access(int t, int l) noexcept {
  location& p = (*this)[l];
  if (!p.alive) return "uses an atomic whose life is over";
  if (p.made_by >= 0 && p.made_by != t &&
      now(t).happened.at[static_cast<unsigned>(p.made_by)] < p.made_at)
    return "uses an atomic whose construction need not have happened before";
  p.used_at[static_cast<unsigned>(t)] = now(t).happened.at[static_cast<unsigned>(t)];
  return nullptr;
}

const char* memory::destroy(int t, int l) noexcept {
  location& p = (*this)[l];
  p.alive = false;
  if (t < 0) return nullptr;
  for (int u = 0; u < max_threads; ++u) {
    const auto i = static_cast<unsigned>(u);
    if (u != t && p.used_at[i] > now(t).happened.at[i])
      return "ends the life of an atomic that another thread may still be using";
  }
  return nullptr;
}

}  // namespace systematic
