// SPDX-License-Identifier: Apache-2.0
// The three kinds of memory_socket (memory.h): an end of a stream, a listener, datagrams.
#pragma once

#include <deque>

#include "net/memory.h"

namespace weft::detail {

class memory_stream final : public memory_socket {
 public:
  using memory_socket::memory_socket;
  static void join(memory_stream& a, memory_stream& b) noexcept {
    a.peer_ = &b;
    b.peer_ = &a;
  }

  long receive(const iovec* v, std::size_t n) noexcept override;
  long send(const iovec* v, std::size_t n) noexcept override;
  int shutdown(int how) noexcept override;
  int set_option(int level, int name) noexcept override;
  int set_linger(int seconds) noexcept override;
  void reset_on_close() noexcept { reset_on_close_ = true; }

 protected:
  std::int64_t due(rt::poll_mode m) const noexcept override;
  void on_close() noexcept override;

 private:
  struct segment {
    std::string bytes;
    std::size_t taken;  // of them
    std::int64_t at;
    bool end;  // no bytes, and none will follow
  };
  void arrive(std::string bytes, bool end);
  void reset(std::int64_t at) noexcept;
  void throw_away() noexcept;
  std::size_t take(const iovec* v, std::size_t n, std::size_t most) noexcept;

  memory_stream* peer_ = nullptr;  // null: closed
  std::deque<segment> in_;         // by `at`
  std::size_t unread_ = 0;         // bytes in it, those under way too: the window's share
  std::size_t void_ = 0;           // room left, when nobody reads any more and we do not know it
  std::int64_t last_at_ = 0;
  bool tell_reset() noexcept { return !std::exchange(reset_told_, true); }

  std::int64_t reset_at_ = rt::never;    // from then on, when what had arrived is read
  bool reset_told_ = false;              // ECONNRESET is told once, to a read or to a write
  std::int64_t hung_up_at_ = rt::never;  // from then on EPIPE: we know that the peer has closed
  bool read_shut_ = false, write_shut_ = false, reset_on_close_ = false;
};

class memory_listener final : public memory_socket {
 public:
  using memory_socket::memory_socket;
  void push(std::unique_ptr<memory_stream> s) {
    backlog_.push_back(std::move(s));
    wake(rt::poll_mode::read);
  }
  long accept(std::unique_ptr<memory_socket>& to) noexcept;
  long receive(const iovec* v, std::size_t n) noexcept override;
  long send(const iovec* v, std::size_t n) noexcept override;

 protected:
  std::int64_t due(rt::poll_mode m) const noexcept override;
  void on_close() noexcept override;

 private:
  std::deque<std::unique_ptr<memory_stream>> backlog_;
};

class memory_packets final : public memory_socket {
 public:
  using memory_socket::memory_socket;
  long receive(const iovec* v, std::size_t n) noexcept override;
  long receive_from(void* b, std::size_t n, sockaddr* from, socklen_t* size) noexcept override;
  long send(const iovec* v, std::size_t n) noexcept override;
  long send_to(const void* b, std::size_t n, const net::address& to) noexcept override;

 protected:
  std::int64_t due(rt::poll_mode m) const noexcept override;
  void on_close() noexcept override;

 private:
  struct packet {
    std::string bytes;
    net::address from;
  };
  long take(const iovec* v, std::size_t n, net::address* from) noexcept;
  long put(std::string bytes, const net::address& to);

  std::multimap<std::int64_t, packet> in_;  // by the time of arrival: they overtake one another
  std::size_t unread_ = 0;
  std::int64_t last_at_ = 0;
};

// Of several buffers, in order: their sum, and their first n bytes.
std::size_t size_of(const iovec* v, std::size_t n) noexcept;
std::string bytes_of(const iovec* v, std::size_t n, std::size_t most);
// Behind the first `skip` bytes of the buffers; how many there was room for.
std::size_t scatter(std::string_view from, const iovec* v, std::size_t n,
                    std::size_t skip) noexcept;

bool is_unnamed(const net::address& a) noexcept;  // of a Unix socket that was not bound
// The loopback's for any address.
net::address concrete(const net::address& to) noexcept;
// The errno for a name that nobody has.
int nobody_at(const net::address& a);

}  // namespace weft::detail
