// SPDX-License-Identifier: Apache-2.0
// The Redis protocol, version 2: requests in, replies out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

// Takes requests apart as they come in, at whatever byte a read has ended. It goes on where it
// stood: a value of many reads is looked at once.
//
// A request is an array of bulk strings (*2\r\n$3\r\nGET\r\n$1\r\nk\r\n) or a line of words.
//
// The limits are Redis's (proto-max-bulk-len, 1024 * 1024 arguments), and one of a whole request,
// which is what bounds the memory of a connection. Redis has that too, for all that is in its
// buffer (client-query-buffer-limit, 1 GB), and hangs up without a word.
constexpr std::size_t default_max_request = std::size_t{512} * 1024 * 1024;

class request_parser {
 public:
  enum class result { request, more, error };

  explicit request_parser(std::size_t max_request = default_max_request)
      : max_request_(max_request) {}

  // Room for the next read, at least `least`; then received(n).
  std::span<char> room(std::size_t least = 16 * 1024);
  void received(std::size_t n) noexcept { end_ += n; }

  // request: args() is the next one, valid until the next call of next() or room(). more: nothing
  // complete is left. error: what() says what is wrong; the connection is beyond repair.
  result next();
  std::span<const std::string_view> args() const noexcept { return args_; }
  const std::string& what() const noexcept { return error_; }

  static constexpr std::size_t max_line = 64 * 1024;
  static constexpr std::int64_t max_args = 1024 * 1024;

 private:
  struct piece {
    std::size_t at, size;  // at: from the request's begin
  };
  result array();
  result line();
  bool split(std::string_view words);
  // The line at scan_, without its end; false: not all here.
  bool take_line(std::string_view& text, const char* too_long);
  result fail(std::string why);
  std::string_view rest() const noexcept {
    return {buf_.data() + begin_ + scan_, end_ - begin_ - scan_};
  }

  const std::size_t max_request_;  // in bytes, its heads included; of a string too
  std::vector<char> buf_;
  std::size_t begin_ = 0;        // of the request
  std::size_t end_ = 0;          // of what was received
  std::size_t scan_ = 0;         // looked at so far, from begin_
  std::size_t line_seen_ = 0;    // of the line at scan_: no end in these bytes
  std::int64_t args_left_ = -1;  // -1: the array's head is not read yet
  std::int64_t bulk_left_ = -1;  // length of the string at scan_; -1: its head is not read yet
  std::vector<piece> pieces_;
  std::vector<std::string_view> args_;
  std::vector<std::string> words_;  // of a line: quotes are undone
  std::string error_;
};

// Replies are appended to what one write will send. A reply of more than a request's limit (an MGET
// may ask for one value a million times) is none: bulk throws.
class reply {
 public:
  struct too_big {};
  explicit reply(std::size_t max_reply = default_max_request) : max_reply_(max_reply) {}
  void begin() noexcept { begin_ = out_.size(); }
  void take_back() { out_.resize(begin_); }  // what has been appended since

  void simple(std::string_view s) { line('+', s); }
  void error(std::string_view s) { line('-', s); }  // "ERR ..."
  void integer(std::int64_t n);
  void bulk(std::string_view s);
  void nil() { out_ += "$-1\r\n"; }
  void array(std::size_t n);

  std::string_view text() const noexcept { return out_; }
  bool empty() const noexcept { return out_.empty(); }
  std::size_t size() const noexcept { return out_.size(); }
  void clear();

 private:
  void line(char kind, std::string_view s);
  void head(char kind, std::int64_t n);
  const std::size_t max_reply_;
  std::size_t begin_ = 0;  // of the current one
  std::string out_;
};

}  // namespace kv
