// SPDX-License-Identifier: Apache-2.0
// Boost.Asio and weft, both ways. Needs the headers of Boost, 1.74 or later; <weft/weft.hpp> does
// not include it.
//
// 1. net::conn is a SyncReadStream and a SyncWriteStream: asio::read and write, Beast's HTTP and
//    WebSocket and asio::ssl::stream run over it unchanged, and park the goroutine where they would
//    block a thread:
//
//      http::read(conn, buffer, request);
//      websocket::stream<net::conn> ws(std::move(conn));
//      asio::ssl::stream<net::conn> tls(std::move(conn), ssl_context);
//
//    Only synchronous operations; deadlines are conn's own (set_deadline) and end an operation
//    with asio::error::timed_out.
//
// 2. use_goroutine waits for any asynchronous operation of Asio and gives its result:
//
//      std::size_t n = socket.async_read_some(buffer, weft::use_goroutine);
//
//    The operation completes on whatever thread runs its io_context; that thread wakes the
//    goroutine. An error_code that is set is thrown as boost::system::system_error. If the
//    operation is dropped, because its io_context is destroyed, std::logic_error ("broken
//    promise"). An io_context is run on a thread of its own, or in a goroutine inside
//    weft::blocking.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <span>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>
#include <boost/throw_exception.hpp>
#if __has_include(<boost/beast/core/role.hpp>)
#include <boost/beast/core/role.hpp>
#define WEFT_ASIO_BEAST 1
#endif

#include <weft/go.hpp>
#include <weft/net.hpp>

namespace weft::detail {

// Streams built on a conn want an executor for timers of theirs, which synchronous operations never
// start. Asio's own: nothing runs unless something is posted to it.
class asio_executor : public boost::asio::system_executor {};

inline boost::system::error_code to_asio(std::error_code ec) noexcept {
  namespace error = boost::asio::error;
  if (!ec) return {};
  if (ec.category() == std::system_category())
    return {ec.value(), boost::system::system_category()};
  if (ec == errc::closed) return error::bad_descriptor;
  if (ec == errc::deadline_exceeded) return error::timed_out;
  if (ec == errc::canceled) return error::operation_aborted;
  return {EIO, boost::system::system_category()};  // what no stream's operation gives
}

inline void throw_asio(const boost::system::error_code& ec, const char* what) {
  if (ec) boost::throw_exception(boost::system::system_error(ec, what));
}

// The buffers of a sequence that are not empty, as conn takes them: as many as one system call is
// given. A sequence with more is read or written in part, as Asio's own sockets do.
template <class Span, class Buffer>
class asio_spans {
 public:
  template <class Buffers>
  explicit asio_spans(const Buffers& bs) {
    const auto end = boost::asio::buffer_sequence_end(bs);
    for (auto i = boost::asio::buffer_sequence_begin(bs); i != end && n_ < spans_.size(); ++i) {
      const Buffer b(*i);
      if (b.size() != 0)
        spans_[n_++] = Span(static_cast<typename Span::element_type*>(b.data()), b.size());
    }
  }
  bool empty() const noexcept { return n_ == 0; }
  std::span<const Span> get() const noexcept { return {spans_.data(), n_}; }

 private:
  std::array<Span, 64> spans_;
  std::size_t n_ = 0;
};

template <class Buffers>
requires(boost::asio::is_mutable_buffer_sequence<Buffers>::value) struct asio_reader<Buffers> {
  using buffers = Buffers;
  static std::size_t read(const net::conn& c, const Buffers& bs, boost::system::error_code& ec) {
    const asio_spans<net::buffer, boost::asio::mutable_buffer> spans(bs);
    ec = {};
    if (spans.empty()) return 0;  // not the end
    std::error_code e;
    const std::size_t n = c.read_some(spans.get(), e);
    ec = to_asio(e);
    if (!ec && n == 0) ec = boost::asio::error::eof;
    return n;
  }
  static std::size_t read(const net::conn& c, const Buffers& bs) {
    boost::system::error_code ec;
    const std::size_t n = read(c, bs, ec);
    throw_asio(ec, "read_some");
    return n;
  }
};

template <class Buffers>
requires(boost::asio::is_const_buffer_sequence<Buffers>::value) struct asio_writer<Buffers> {
  using buffers = Buffers;
  static std::size_t write(const net::conn& c, const Buffers& bs, boost::system::error_code& ec) {
    const asio_spans<net::const_buffer, boost::asio::const_buffer> spans(bs);
    std::error_code e;
    const std::size_t n = spans.empty() ? 0 : c.write_some(spans.get(), e);
    ec = to_asio(e);
    return n;
  }
  static std::size_t write(const net::conn& c, const Buffers& bs) {
    boost::system::error_code ec;
    const std::size_t n = write(c, bs, ec);
    throw_asio(ec, "write_some");
    return n;
  }
};

}  // namespace weft::detail

namespace weft::net {

inline detail::asio_executor conn::get_executor() const noexcept { return {}; }

#if defined(WEFT_ASIO_BEAST)
// How Beast's WebSocket ends a connection (it finds these by their argument): the server waits
// until the client has closed, so that its last frame is not lost to a reset.
inline void teardown(boost::beast::role_type role, conn& c, boost::system::error_code& ec) {
  std::error_code e;
  if (role == boost::beast::role_type::server) c.close_write(e);
  std::array<std::byte, 2048> rest;
  while (!e && c.read_some(buffer(rest), e) != 0) {
  }
  std::error_code closing;
  c.close(closing);
  ec = detail::to_asio(e);
}
inline void beast_close_socket(conn& c) {
  std::error_code ec;
  c.close(ec);
}
#endif

}  // namespace weft::net

namespace weft {

struct use_goroutine_t {
  constexpr use_goroutine_t() = default;
};
inline constexpr use_goroutine_t use_goroutine;

namespace detail {

// What an operation that completes with A... gives: A without the error at its head; nothing, the
// one value, or a tuple.
template <class... V>
struct asio_value {
  using type = std::tuple<V...>;
};
template <class V>
struct asio_value<V> {
  using type = V;
};
template <>
struct asio_value<> {
  using type = void;
};

template <class... A>
struct asio_result : asio_value<A...> {
  static std::exception_ptr error(const A&...) noexcept { return nullptr; }
  template <class P>
  static void set(P& p, A... a) {
    if constexpr (sizeof...(A) < 2) {
      p.set_value(std::move(a)...);
    } else {
      p.set_value(std::tuple<A...>(std::move(a)...));
    }
  }
};
template <class... A>
struct asio_result<boost::system::error_code, A...> : asio_value<A...> {
  static std::exception_ptr error(const boost::system::error_code& ec, const A&...) {
    return ec ? std::make_exception_ptr(boost::system::system_error(ec)) : nullptr;
  }
  template <class P>
  static void set(P& p, const boost::system::error_code&, A... a) {
    asio_result<A...>::set(p, std::move(a)...);
  }
};
template <class... A>
struct asio_result<std::error_code, A...> : asio_value<A...> {
  static std::exception_ptr error(const std::error_code& ec, const A&...) {
    return ec ? std::make_exception_ptr(std::system_error(ec)) : nullptr;
  }
  template <class P>
  static void set(P& p, const std::error_code&, A... a) {
    asio_result<A...>::set(p, std::move(a)...);
  }
};
template <class... A>
struct asio_result<std::exception_ptr, A...> : asio_value<A...> {
  static std::exception_ptr error(const std::exception_ptr& e, const A&...) noexcept { return e; }
  template <class P>
  static void set(P& p, const std::exception_ptr&, A... a) {
    asio_result<A...>::set(p, std::move(a)...);
  }
};

// Called once, by whoever completes the operation, or dropped.
template <class... A>
class asio_handler {
 public:
  using result = asio_result<std::decay_t<A>...>;
  explicit asio_handler(promise<typename result::type> p) noexcept : p_(std::move(p)) {}
  void operator()(std::decay_t<A>... a) {
    if (std::exception_ptr e = result::error(a...)) {
      p_.set_exception(std::move(e));
    } else {
      result::set(p_, std::move(a)...);
    }
  }

 private:
  promise<typename result::type> p_;
};

}  // namespace detail
}  // namespace weft

template <class... A>
class boost::asio::async_result<weft::use_goroutine_t, void(A...)> {
 public:
  using return_type = typename weft::detail::asio_handler<A...>::result::type;

  template <class Initiation, class... Args>
  static return_type initiate(Initiation&& start, const weft::use_goroutine_t&, Args&&... args) {
    weft::promise<return_type> p;
    weft::task<return_type> done = p.get_task();
    std::forward<Initiation>(start)(weft::detail::asio_handler<A...>(std::move(p)),
                                    std::forward<Args>(args)...);
    return done.get();
  }
};

#undef WEFT_ASIO_BEAST
