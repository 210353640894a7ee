// SPDX-License-Identifier: Apache-2.0
// Streams of a bubble's network, and the listeners that they come from. See memory.h.
//
// The two ends know each other until one closes. A stream is what TCP promises and no more: bytes
// in order, no bounds of messages, an end that comes behind all bytes. A reset overtakes: what is
// still under way is lost, what has arrived can be read. Who closes with bytes unread, or under way
// to it, resets, as TCP does.
//
// What the kernel says is said here: a reset once, to a read or a write, after which reads find the
// end and writes EPIPE; no reset behind an end that has arrived; and the first write to one that
// has closed succeeds, of TCP, for only the answer to it says that nobody is there. Of Unix sockets
// everybody knows at once, and a write never hears of a reset.
//
// Runs on the caller's stack, under the network's lock.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <new>

#include "net/memory_socket.h"

namespace weft::detail {

using rt::poll_mode;

std::size_t size_of(const iovec* v, std::size_t n) noexcept {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += v[i].iov_len;
  return sum;
}

std::string bytes_of(const iovec* v, std::size_t n, std::size_t most) {
  std::string s;
  for (std::size_t i = 0; i < n && s.size() < most; ++i)
    s.append(static_cast<const char*>(v[i].iov_base), std::min(v[i].iov_len, most - s.size()));
  return s;
}

std::size_t scatter(std::string_view from, const iovec* v, std::size_t n,
                    std::size_t skip) noexcept {
  std::size_t done = 0;
  for (std::size_t i = 0; i < n && done < from.size(); ++i) {
    if (skip >= v[i].iov_len) {
      skip -= v[i].iov_len;
      continue;
    }
    const std::size_t k = std::min(v[i].iov_len - skip, from.size() - done);
    std::memcpy(static_cast<char*>(v[i].iov_base) + skip, from.data() + done, k);
    done += k;
    skip = 0;
  }
  return done;
}

void memory_stream::arrive(std::string bytes, bool end) {
  last_at_ = std::max(last_at_, net().arrival());
  const std::size_t n = bytes.size();
  in_.push_back({std::move(bytes), 0, last_at_, end});
  unread_ += n;
  wake(poll_mode::read);
}

// What has not arrived by now never will.
void memory_stream::reset(std::int64_t at) noexcept {
  reset_at_ = std::min(reset_at_, at);
  while (!in_.empty() && in_.back().at > net().now()) {
    unread_ -= in_.back().bytes.size() - in_.back().taken;
    in_.pop_back();
  }
  wake(poll_mode::read);
  wake(poll_mode::write);
}

void memory_stream::throw_away() noexcept {
  in_.clear();
  unread_ = 0;
  if (peer_ != nullptr) peer_->wake(poll_mode::write);
}

std::size_t memory_stream::take(const iovec* v, std::size_t n, std::size_t most) noexcept {
  std::size_t done = 0;
  while (done < most) {
    segment& s = in_.front();
    const std::size_t k = std::min(most - done, s.bytes.size() - s.taken);
    scatter(std::string_view(s.bytes).substr(s.taken, k), v, n, done);
    done += k;
    s.taken += k;
    if (s.taken == s.bytes.size()) in_.pop_front();
  }
  unread_ -= done;
  if (peer_ != nullptr) peer_->wake(poll_mode::write);
  return done;
}

long memory_stream::receive(const iovec* v, std::size_t n) noexcept {
  const std::int64_t now = net().now();
  std::size_t there = 0;
  for (const segment& s : in_) {
    if (s.at > now) break;
    there += s.bytes.size() - s.taken;
  }
  if (there != 0) return static_cast<long>(take(v, n, net().part(std::min(there, size_of(v, n)))));
  if (!in_.empty() && in_.front().at <= now) return 0;  // only the end has no bytes
  if (reset_at_ <= now) return tell_reset() ? -ECONNRESET : 0;
  return read_shut_ ? 0 : -EAGAIN;
}

long memory_stream::send(const iovec* v, std::size_t n) noexcept {
  const std::size_t all = size_of(v, n);
  const std::int64_t now = net().now();
  if (all == 0) return 0;
  if (write_shut_) return -EPIPE;
  if (reset_at_ <= now) {
    const bool ended = !in_.empty() && in_.back().end;
    return !local.is_unix() && !ended && tell_reset() ? -ECONNRESET : -EPIPE;
  }
  if (hung_up_at_ <= now) return -EPIPE;
  if (peer_ == nullptr || peer_->reset_at_ <= now) {  // of which we have not heard yet
    if (peer_ == nullptr && reset_at_ == rt::never && hung_up_at_ == rt::never)
      hung_up_at_ = net().arrival() + net().delay();  // there, and the answer
    const std::size_t lost = std::min(all, void_);
    void_ -= lost;
    return lost != 0 ? static_cast<long>(lost) : -EAGAIN;
  }
  if (peer_->read_shut_ && local.is_unix()) return -EPIPE;  // over TCP nobody is told
  const std::size_t window = net().opt.window;
  if (peer_->unread_ >= window) return -EAGAIN;
  if (net().chance(net().opt.resets)) {
    peer_->void_ = window - std::min(window, unread_);
    peer_->reset(net().arrival());
    reset(now);
    reset_told_ = true;
    return -ECONNRESET;
  }
  const std::size_t some = net().part(std::min(all, window - peer_->unread_));
  try {
    peer_->arrive(bytes_of(v, n, some), false);
  } catch (const std::bad_alloc&) {
    return -ENOBUFS;
  }
  return static_cast<long>(some);
}

int memory_stream::shutdown(int how) noexcept {
  if (reset_at_ <= net().now() && !local.is_unix()) return -ENOTCONN;
  if (how == SHUT_RD) {  // what is there, and of TCP what comes, can still be read
    read_shut_ = true;
    wake(poll_mode::read);
    if (peer_ != nullptr) peer_->wake(poll_mode::write);
    return 0;
  }
  if (!write_shut_ && peer_ != nullptr) peer_->arrive({}, true);
  write_shut_ = true;
  wake(poll_mode::write);
  return 0;
}

int memory_stream::set_option(int level, int) noexcept {
  return level == IPPROTO_TCP && local.is_unix() ? -EOPNOTSUPP : 0;
}

int memory_stream::set_linger(int seconds) noexcept {
  reset_on_close_ = seconds == 0 && !local.is_unix();
  return 0;
}

std::int64_t memory_stream::due(poll_mode m) const noexcept {
  if (m == poll_mode::write) return std::min(reset_at_, hung_up_at_);
  return in_.empty() ? reset_at_ : std::min(reset_at_, in_.front().at);
}

void memory_stream::on_close() noexcept {
  memory_stream* p = std::exchange(peer_, nullptr);
  if (p != nullptr) {
    p->peer_ = nullptr;
    p->void_ = net().opt.window - std::min(net().opt.window, unread_);
    if (unread_ != 0 || reset_on_close_) {
      p->reset(net().arrival());
    } else if (reset_at_ == rt::never) {  // else it hears of that
      if (!write_shut_) p->arrive({}, true);
      if (local.is_unix())
        p->hung_up_at_ = write_shut_ ? std::max(p->last_at_, net().arrival()) : p->last_at_;
      p->wake(poll_mode::write);
    }
  }
  throw_away();
}

// -- listeners

long memory_listener::accept(std::unique_ptr<memory_socket>& to) noexcept {
  if (backlog_.empty()) return -EAGAIN;
  to = std::move(backlog_.front());
  backlog_.pop_front();
  return 0;
}

long accept_memory(memory_socket* listener, std::unique_ptr<memory_socket>& to) noexcept {
  return static_cast<memory_listener*>(listener)->accept(to);
}

long memory_listener::receive(const iovec*, std::size_t) noexcept { return -ENOTCONN; }
long memory_listener::send(const iovec*, std::size_t) noexcept { return -ENOTCONN; }
std::int64_t memory_listener::due(poll_mode) const noexcept { return rt::never; }

void memory_listener::on_close() noexcept {
  net().remove(this);
  for (const auto& s : backlog_) {
    s->reset_on_close();
    s->close_locked();
  }
  backlog_.clear();
}

}  // namespace weft::detail
