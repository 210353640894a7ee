// SPDX-License-Identifier: Apache-2.0
// Beast parses, over weft's connection; the one file that pays for its headers. What a client sends
// ahead stays in the buffer, so pipelined requests are answered one after the other, in order.
// Answers are a head and a body in one write, or a file that the kernel copies (sendfile).
#include "httpd/talk.h"

#include <array>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <ctime>
#include <span>
#include <string>
#include <string_view>

#include <weft/asio.hpp>

namespace httpd {

namespace {

namespace http = boost::beast::http;
using boost::system::error_code;
using parser = http::request_parser<http::string_body>;

constexpr std::size_t max_head = 16 * 1024;
constexpr std::size_t max_body = 1024 * 1024;
constexpr std::size_t max_buffer = 128 * 1024;  // of a chunk's header too, which has no other limit
constexpr std::size_t file_part = 4 * 1024 * 1024;

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  gmtime_r(&now, &tm);
  std::array<char, 40> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &tm)};
}

std::string head(const answer& a, bool keep) {
  std::string h = "HTTP/1.1 " + std::to_string(a.status) + " ";
  h.append(reason(a.status)).append("\r\nServer: weft\r\nDate: ").append(date());
  h.append("\r\nContent-Type: ").append(a.type).append("\r\nContent-Length: ");
  h.append(std::to_string(a.content ? a.size : a.body.size())).append("\r\n").append(a.headers);
  return h.append(keep ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
}

class session {
 public:
  session(const weft::net::conn& c, const site& s, const examples::server& server,
          std::chrono::seconds timeout)
      : c_(c), site_(s), server_(server), timeout_(timeout) {}

  // True: more may follow.
  bool next() {
    parser p;
    p.header_limit(max_head);
    p.body_limit(max_body);
    error_code ec;
    if (!allow_time()) return false;
    http::read_header(c_, buffer_, p, ec);
    if (!ec && !p.is_done()) {
      if (boost::beast::iequals(p.get()[http::field::expect], "100-continue"))
        write("HTTP/1.1 100 Continue\r\n\r\n", {});
      http::read(c_, buffer_, p, ec);
    }
    if (ec) return refuse(ec);

    const auto& q = p.get();
    const bool is_head = q.method() == http::verb::head;
    if ((q.version() >= 11 && q.count(http::field::host) != 1) || !has_clear_end(q)) {
      send(error(400), false, false);
      part();
      return false;
    }
    const bool keep = q.keep_alive() && !server_.stopping();
    // Ranges are GET's; and on condition of a validator only if we had sent one.
    const bool whole = is_head || q.count(http::field::if_range) != 0;
    const auto range = whole ? "" : q[http::field::range], target = q.target();
    answer a = is_head || q.method() == http::verb::get
                   ? site_.get({target.data(), target.size()}, {range.data(), range.size()})
                   : error(405, "Allow: GET, HEAD\r\n");
    return send(a, keep, is_head) && keep;
  }

 private:
  // Where its body ends must be beyond doubt, or what follows would be taken for another request
  // (RFC 9112, 6.3).
  static bool has_clear_end(const parser::value_type& q) {
    if (q.count(http::field::transfer_encoding) == 0) return true;
    return q.version() >= 11 && q.chunked() && q.count(http::field::content_length) == 0;
  }
  // False: the server stops. It looks after the deadline is set: one that stops sets `stopping`
  // first and the deadline then, so one of the two is seen.
  bool allow_time() {
    std::error_code ec;
    c_.set_read_deadline(weft::clock::now() + timeout_, ec);
    return !ec && !server_.stopping();
  }
  bool write(std::string_view a, std::string_view b) {
    const weft::net::const_buffer parts[] = {std::as_bytes(std::span(a)),
                                             std::as_bytes(std::span(b))};
    std::error_code ec;
    c_.set_write_deadline(weft::clock::now() + timeout_, ec);
    c_.write_all(parts, ec);
    return !ec;
  }
  bool send(const answer& a, bool keep, bool head_only) {
    if (!write(head(a, keep), head_only || a.content ? std::string_view() : a.body)) return false;
    if (!a.content || head_only) return true;
    for (std::uint64_t done = 0; done < a.size;) {
      std::error_code ec;
      c_.set_write_deadline(weft::clock::now() + timeout_, ec);
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(a.size - done, file_part));
      const std::size_t sent =
          c_.send_file(a.content.fd(), static_cast<off_t>(a.offset + done), n, ec);
      // A file that has become shorter cannot be told any more: the connection ends early.
      if (ec || sent == 0) return false;
      done += sent;
    }
    return true;
  }
  bool refuse(const error_code& ec) {
    if (ec == http::error::header_limit) {
      send(error(431), false, false);
    } else if (ec == http::error::body_limit) {
      send(error(413), false, false);
    } else if (ec.category() == make_error_code(http::error::bad_method).category() &&
               ec != http::error::end_of_stream && ec != http::error::partial_message) {
      send(error(400), false, false);
    } else {
      return false;  // gone, silent for too long, or told to stop
    }
    part();
    return false;
  }
  // Until the client has read the answer: closing with unread bytes would reset the connection.
  void part() {
    std::error_code ec;
    c_.close_write(ec);
    if (!allow_time()) return;
    std::array<std::byte, 4096> rest;
    for (std::size_t left = 4 * max_body; left >= rest.size(); left -= rest.size()) {
      if (c_.read_some(weft::net::buffer(rest), ec) == 0) return;
    }
  }

  const weft::net::conn& c_;
  const site& site_;
  const examples::server& server_;
  const std::chrono::seconds timeout_;
  boost::beast::flat_buffer buffer_{max_buffer};
};

}  // namespace

void talk(const weft::net::conn& c, const site& s, const examples::server& server,
          std::chrono::seconds timeout) {
  session here(c, s, server, timeout);
  while (here.next()) {
  }
}

}  // namespace httpd
