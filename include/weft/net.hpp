// SPDX-License-Identifier: Apache-2.0
// The network: TCP, UDP and Unix sockets that block goroutines (and plain threads), never a P.
//
// listener, conn and packet_conn are move-only owners; the destructor closes. Members may run
// concurrently; reads exclude reads and writes exclude writes. close() from anywhere wakes all who
// wait with errc::closed. Each call has an overload with a last std::error_code& that does not
// throw; the others throw net::op_error, whose text is Go's (`read tcp a->b: i/o timeout`).
//
// A deadline is an absolute time and holds until it is changed: what is called after it fails at
// once with errc::deadline_exceeded, whatever is ready. time_point::max() is none.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/types.h>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/context.hpp>
#include <weft/detail/clock.hpp>
#include <weft/detail/errc.hpp>
#include <weft/detail/given.hpp>
#include <weft/time.hpp>

namespace weft::net {

// What is wrong with an address or a name, beside the system's errors.
enum class errc {
  no_such_host = 1,
  lookup_failed,  // may work later
  unknown_network,
  missing_port,
  too_many_colons,
  invalid_address,
  unknown_port,
  no_suitable_address,
};
WEFT_API const std::error_category& net_category() noexcept;  // name(): "weft.net"
inline std::error_code make_error_code(errc e) noexcept {
  return {static_cast<int>(e), net_category()};
}

// What the throwing calls throw. what(): `op network source->address: cause`.
class WEFT_API op_error : public std::system_error {
 public:
  op_error(std::error_code cause, std::string text)
      : std::system_error(cause), text_(std::move(text)) {}
  ~op_error() override;
  const char* what() const noexcept override { return text_.c_str(); }
  bool timeout() const noexcept { return code() == weft::errc::deadline_exceeded; }

 private:
  std::string text_;
};

// The address of a socket: IPv4 or IPv6 with port, or the path of a Unix socket. ::ffff:a.b.c.d is
// the IPv4 address.
class WEFT_API address {
 public:
  address() noexcept = default;  // none
  address(const sockaddr* sa, socklen_t size) noexcept;
  // "127.0.0.1:80", "[::1]:80"; no names.
  static address parse(std::string_view text);
  static address parse(std::string_view text, std::error_code& ec);
  // "@…": abstract; "": no name, for bind, which then gives it an abstract one.
  static address unix_path(std::string_view path, std::error_code& ec);

  bool is_ipv4() const noexcept { return family() == AF_INET; }
  bool is_ipv6() const noexcept { return family() == AF_INET6; }
  bool is_unix() const noexcept { return family() == AF_UNIX; }
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete): the analyzer does not follow the counts
  explicit operator bool() const noexcept { return size_ != 0; }
  int family() const noexcept { return size_ == 0 ? AF_UNSPEC : data()->sa_family; }
  std::uint16_t port() const noexcept;
  std::string host() const;                             // without brackets; a Unix socket's path
  std::string to_string() const;                        // as dial and listen take it
  operator std::string() const { return to_string(); }  // NOLINT(google-explicit-constructor)

  const sockaddr* data() const noexcept { return reinterpret_cast<const sockaddr*>(raw_); }
  socklen_t size() const noexcept { return size_; }
  friend WEFT_API bool operator==(const address& a, const address& b) noexcept;
  friend WEFT_API std::ostream& operator<<(std::ostream& out, const address& a);

 private:
  alignas(8) unsigned char raw_[112] = {};  // the largest is a Unix socket's, 110
  socklen_t size_ = 0;
};

}  // namespace weft::net

template <>
struct std::is_error_code_enum<weft::net::errc> : std::true_type {};

namespace weft::detail {

class net_fd;

// What conn, listener and packet_conn share: an owner of one socket.
class WEFT_API socket_handle {
 public:
  socket_handle() noexcept = default;
  explicit socket_handle(net_fd* s) noexcept : s_(s) {}
  socket_handle(socket_handle&& o) noexcept : s_(std::exchange(o.s_, nullptr)) {}
  socket_handle& operator=(socket_handle&& o) noexcept {
    socket_handle from(std::move(o));  // first: o may be *this
    std::swap(s_, from.s_);
    return *this;
  }
  ~socket_handle();

  explicit operator bool() const noexcept { return s_ != nullptr; }  // not empty or moved-from
  // Wakes all who wait. A second one is errc::closed.
  void close() const;
  void close(std::error_code& ec) const noexcept;
  // The number of the socket, for setsockopt; -1 when closed. It stays ours, and non-blocking.
  int fd() const noexcept;
  // A copy of the descriptor, the caller's own.
  int dup() const;
  int dup(std::error_code& ec) const noexcept;

  template <class Clock, class Duration>
  void set_deadline(std::chrono::time_point<Clock, Duration> tp) const {
    std::error_code ec;
    deadline(3, to_deadline_ns(tp), ec);
    if (ec) fail_deadline(ec);
  }
  template <class Clock, class Duration>
  void set_deadline(std::chrono::time_point<Clock, Duration> tp, std::error_code& ec) const {
    deadline(3, to_deadline_ns(tp), ec);
  }

 protected:
  // As detail::deadline_at, but what lies before the clock's epoch is past too.
  template <class Clock, class Duration>
  static std::int64_t to_deadline_ns(std::chrono::time_point<Clock, Duration> tp) {
    const std::int64_t t = deadline_at(tp);
    return t > 0 ? t : 1;
  }
  void deadline(unsigned modes, std::int64_t when, std::error_code& ec) const noexcept;
  [[noreturn]] void fail(const char* op, std::error_code ec) const;
  [[noreturn]] void fail_deadline(std::error_code ec) const;
  net_fd* s_ = nullptr;
};

class WEFT_API rw_handle : public socket_handle {
 public:
  using socket_handle::socket_handle;
  template <class Clock, class Duration>
  void set_read_deadline(std::chrono::time_point<Clock, Duration> tp) const {
    std::error_code ec;
    deadline(1, to_deadline_ns(tp), ec);
    if (ec) fail_deadline(ec);
  }
  template <class Clock, class Duration>
  void set_read_deadline(std::chrono::time_point<Clock, Duration> tp, std::error_code& ec) const {
    deadline(1, to_deadline_ns(tp), ec);
  }
  template <class Clock, class Duration>
  void set_write_deadline(std::chrono::time_point<Clock, Duration> tp) const {
    std::error_code ec;
    deadline(2, to_deadline_ns(tp), ec);
    if (ec) fail_deadline(ec);
  }
  template <class Clock, class Duration>
  void set_write_deadline(std::chrono::time_point<Clock, Duration> tp, std::error_code& ec) const {
    deadline(2, to_deadline_ns(tp), ec);
  }
  net::address local_addr() const;
};

}  // namespace weft::detail

namespace weft::detail {

// What makes conn a stream of Boost.Asio; <weft/asio.hpp> completes it. Without that header no type
// is a sequence of Asio's buffers.
class asio_executor;
template <class Buffers>
struct asio_reader {};
template <class Buffers>
struct asio_writer {};
template <class Buffers>
concept asio_mutable_buffers = requires {
  typename asio_reader<Buffers>::buffers;
};
template <class Buffers>
concept asio_const_buffers = requires {
  typename asio_writer<Buffers>::buffers;
};

}  // namespace weft::detail

namespace weft::net {

using buffer = std::span<std::byte>;
using const_buffer = std::span<const std::byte>;

class WEFT_API conn : public detail::rw_handle {
  // What stands beside a buffer; {} is an empty buffer.
  using chars = detail::given<std::span<char>>;
  using text = detail::given<std::string_view, std::span<const char>>;
  using buffers = detail::given<std::span<const buffer>>;
  using const_buffers = detail::given<std::span<const const_buffer>>;

 public:
  using rw_handle::rw_handle;

  // What there is, at least one byte; 0: the end (or an empty buffer).
  std::size_t read_some(buffer b) const;
  std::size_t read_some(buffer b, std::error_code& ec) const;
  std::size_t read_some(chars b) const {
    return read_some(std::as_writable_bytes(std::span<char>(b)));
  }
  std::size_t read_some(chars b, std::error_code& ec) const {
    return read_some(std::as_writable_bytes(std::span<char>(b)), ec);
  }
  // Into several buffers, one after the other.
  std::size_t read_some(buffers bs) const;
  std::size_t read_some(buffers bs, std::error_code& ec) const;
  // Fills b. The end before that is errc::unexpected_eof. How much was read, in any case.
  std::size_t read_full(buffer b) const;
  std::size_t read_full(buffer b, std::error_code& ec) const;
  std::size_t read_full(chars b) const {
    return read_full(std::as_writable_bytes(std::span<char>(b)));
  }
  std::size_t read_full(chars b, std::error_code& ec) const {
    return read_full(std::as_writable_bytes(std::span<char>(b)), ec);
  }

  // All of it; with an error_code how much went out before the error. Writes of several goroutines
  // do not mix.
  std::size_t write_all(const_buffer b) const;
  std::size_t write_all(const_buffer b, std::error_code& ec) const;
  std::size_t write_all(text s) const { return write_all(std::as_bytes(std::span(s))); }
  std::size_t write_all(text s, std::error_code& ec) const {
    return write_all(std::as_bytes(std::span(s)), ec);
  }
  template <std::same_as<char> C>
  std::size_t write_all(const C* s) const {
    return write_all(std::string_view(s));
  }
  template <std::same_as<char> C>
  std::size_t write_all(const C* s, std::error_code& ec) const {
    return write_all(std::string_view(s), ec);
  }
  std::size_t write_all(const_buffers bs) const;
  std::size_t write_all(const_buffers bs, std::error_code& ec) const;
  // As much as goes without waiting, but at least one byte.
  std::size_t write_some(const_buffer b) const;
  std::size_t write_some(const_buffer b, std::error_code& ec) const;
  std::size_t write_some(const_buffers bs) const;
  std::size_t write_some(const_buffers bs, std::error_code& ec) const;
  // From a file, without copying: n bytes from offset, or up to its end. How many.
  std::size_t send_file(int file, off_t offset, std::size_t n) const;
  std::size_t send_file(int file, off_t offset, std::size_t n, std::error_code& ec) const;

  void close_write() const;  // the peer reads the end; reading goes on
  void close_write(std::error_code& ec) const noexcept;
  void close_read() const;
  void close_read(std::error_code& ec) const noexcept;
  address remote_addr() const;

  // TCP; on by default.
  void set_no_delay(bool on) const;
  void set_no_delay(bool on, std::error_code& ec) const noexcept;
  // close() sends what is left in the background (< 0, the default), drops it and resets the
  // connection (0), or tries for so many seconds.
  void set_linger(int seconds) const;
  void set_linger(int seconds, std::error_code& ec) const noexcept;

  // -- with <weft/asio.hpp>: SyncReadStream and SyncWriteStream, errors as Asio's. E is
  // boost::system::error_code; the others throw boost::system::system_error. The end is
  // asio::error::eof.
  template <detail::asio_mutable_buffers B>
  std::size_t read_some(const B& b) const {
    return detail::asio_reader<B>::read(*this, b);
  }
  template <detail::asio_mutable_buffers B, class E>
  std::size_t read_some(const B& b, E& ec) const {
    return detail::asio_reader<B>::read(*this, b, ec);
  }
  template <detail::asio_const_buffers B>
  std::size_t write_some(const B& b) const {
    return detail::asio_writer<B>::write(*this, b);
  }
  template <detail::asio_const_buffers B, class E>
  std::size_t write_some(const B& b, E& ec) const {
    return detail::asio_writer<B>::write(*this, b, ec);
  }
  using executor_type = detail::asio_executor;
  executor_type get_executor() const noexcept;
  using lowest_layer_type = conn;
  conn& lowest_layer() noexcept { return *this; }
  const conn& lowest_layer() const noexcept { return *this; }
};

class WEFT_API listener : public detail::socket_handle {
 public:
  using socket_handle::socket_handle;
  // set_deadline() is accept's.
  conn accept() const;
  conn accept(std::error_code& ec) const;
  address addr() const;
};

// A socket of datagrams that is not connected.
class WEFT_API packet_conn : public detail::rw_handle {
  using chars = detail::given<std::span<char>>;
  using text = detail::given<std::string_view, std::span<const char>>;

 public:
  using rw_handle::rw_handle;
  // One datagram, cut to the buffer, and where it came from.
  std::pair<std::size_t, address> read_from(buffer b) const;
  std::pair<std::size_t, address> read_from(buffer b, std::error_code& ec) const;
  std::pair<std::size_t, address> read_from(chars b) const {
    return read_from(std::as_writable_bytes(std::span<char>(b)));
  }
  std::pair<std::size_t, address> read_from(chars b, std::error_code& ec) const {
    return read_from(std::as_writable_bytes(std::span<char>(b)), ec);
  }
  std::size_t write_to(const_buffer b, const address& to) const;
  std::size_t write_to(const_buffer b, const address& to, std::error_code& ec) const;
  std::size_t write_to(text s, const address& to) const {
    return write_to(std::as_bytes(std::span(s)), to);
  }
  std::size_t write_to(text s, const address& to, std::error_code& ec) const {
    return write_to(std::as_bytes(std::span(s)), to, ec);
  }
};

// network: tcp, tcp4, tcp6, unix; for dial and listen_packet also udp, udp4, udp6, unixgram.
// address: host:port, [v6]:port, :port, a path. An empty host is any address when listening, this
// machine when dialling. "" when listening: any address and a free port; of a Unix socket an
// abstract name that is free, @ and five digits (hexadecimal), which addr() or local_addr() tells.
WEFT_API listener listen(std::string_view network, std::string_view address);
WEFT_API listener listen(std::string_view network, std::string_view address, std::error_code& ec);
WEFT_API listener listen(std::string_view network, const address& at);
WEFT_API listener listen(std::string_view network, const address& at, std::error_code& ec);
WEFT_API packet_conn listen_packet(std::string_view network, std::string_view address);
WEFT_API packet_conn listen_packet(std::string_view network, std::string_view address,
                                   std::error_code& ec);
WEFT_API packet_conn listen_packet(std::string_view network, const address& at);
WEFT_API packet_conn listen_packet(std::string_view network, const address& at,
                                   std::error_code& ec);
// With names that have addresses of both families the second family is tried 300 ms after the
// first (RFC 6555).
WEFT_API conn dial(std::string_view network, std::string_view address);
WEFT_API conn dial(std::string_view network, std::string_view address, std::error_code& ec);
// Until ctx is done. A connection that has been made does not depend on ctx. A nil ctx throws
// std::invalid_argument, whichever the overload.
WEFT_API conn dial(const context& ctx, std::string_view network, std::string_view address);
WEFT_API conn dial(const context& ctx, std::string_view network, std::string_view address,
                   std::error_code& ec);
WEFT_API conn dial(std::string_view network, const address& to);
WEFT_API conn dial(std::string_view network, const address& to, std::error_code& ec);
WEFT_API conn dial(const context& ctx, std::string_view network, const address& to);
WEFT_API conn dial(const context& ctx, std::string_view network, const address& to,
                   std::error_code& ec);

// Never blocks a P: names are looked up on threads of their own. port: a number or a service's
// name. A nil ctx throws, as dial's.
WEFT_API std::vector<address> resolve(std::string_view host, std::string_view port);
WEFT_API std::vector<address> resolve(std::string_view host, std::string_view port,
                                      std::error_code& ec);
WEFT_API std::vector<address> resolve(std::string_view host, std::uint16_t port);
WEFT_API std::vector<address> resolve(std::string_view host, std::uint16_t port,
                                      std::error_code& ec);
WEFT_API std::vector<address> resolve(const context& ctx, std::string_view host,
                                      std::string_view port, std::error_code& ec);

}  // namespace weft::net
