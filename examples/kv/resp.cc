// SPDX-License-Identifier: Apache-2.0
// The parser keeps one buffer: [begin_, begin_ + scan_) of the current request has been understood,
// up to end_ has been received. What it has found is kept as offsets from begin_, because the
// buffer moves when it grows; views are made when the request is complete.
#include "kv/resp.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace kv {

namespace {

constexpr std::size_t keep = 1024 * 1024;  // larger buffers are given back when they are empty

bool to_integer(std::string_view s, std::int64_t& n) {
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), n);
  return ec == std::errc() && end == s.data() + s.size();
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0'; }

}  // namespace

namespace {
template <class T>
void give_back(std::vector<T>& v) {
  if (v.capacity() * sizeof(T) > keep) std::vector<T>().swap(v);
}
}  // namespace

std::span<char> request_parser::room(std::size_t least) {
  if (begin_ == end_) {
    give_back(buf_);
    give_back(pieces_);
    give_back(args_);
  }
  if (begin_ != 0) {
    if (end_ != begin_) std::memmove(buf_.data(), buf_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // Doubled as data arrives; what a client only announces costs nothing.
  if (buf_.size() - end_ < least) buf_.resize(std::max(end_ + least, buf_.size() * 2));
  return std::span(buf_).subspan(end_);
}

request_parser::result request_parser::fail(std::string why) {
  error_ = "ERR Protocol error: " + std::move(why);
  return result::error;
}

bool request_parser::take_line(std::string_view& text, const char* too_long) {
  const std::string_view r = rest();
  const std::size_t n = r.find('\n', line_seen_);
  if (n == std::string_view::npos) {
    line_seen_ = r.size();
    if (r.size() > max_line) fail(too_long);
    return false;
  }
  line_seen_ = 0;
  text = r.substr(0, n > 0 && r[n - 1] == '\r' ? n - 1 : n);
  scan_ += n + 1;
  return true;
}

request_parser::result request_parser::next() {
  if (!error_.empty()) return result::error;
  for (;;) {
    if (scan_ == 0 && begin_ == end_) return result::more;
    const result r = buf_[begin_] == '*' ? array() : line();
    if (r != result::request) return error_.empty() ? r : result::error;
    begin_ += scan_;
    scan_ = 0;
    args_left_ = -1;
    pieces_.clear();
    if (!args_.empty()) return r;  // an empty one is no request and has no reply
  }
}

request_parser::result request_parser::array() {
  std::string_view text;
  if (args_left_ < 0) {
    if (!take_line(text, "too big mbulk count string")) return result::more;
    std::int64_t n = 0;
    if (!to_integer(text.substr(1), n) || n > max_args) return fail("invalid multibulk length");
    args_left_ = std::max<std::int64_t>(n, 0);
  }
  for (; args_left_ > 0; --args_left_) {
    if (bulk_left_ < 0) {
      if (!rest().empty() && rest()[0] != '$')
        return fail(std::string("expected '$', got '") + rest()[0] + "'");
      if (!take_line(text, "too big bulk count string")) return result::more;
      std::int64_t n = 0;
      if (!to_integer(text.substr(1), n) || n < 0 || static_cast<std::size_t>(n) > max_request_)
        return fail("invalid bulk length");
      // As announced, before there is any memory for it.
      if (scan_ + static_cast<std::size_t>(n) > max_request_) return fail("too big request");
      bulk_left_ = n;
    }
    const auto size = static_cast<std::size_t>(bulk_left_);
    if (rest().size() < size + 2) return result::more;
    if (rest().substr(size, 2) != "\r\n") return fail("bulk string without its end");
    pieces_.push_back({scan_, size});
    scan_ += size + 2;
    bulk_left_ = -1;
  }
  args_.clear();
  for (const piece& p : pieces_) args_.emplace_back(buf_.data() + begin_ + p.at, p.size);
  return result::request;
}

request_parser::result request_parser::line() {
  std::string_view text;
  if (!take_line(text, "too big inline request")) return result::more;
  if (!split(text)) return fail("unbalanced quotes in request");
  args_.assign(words_.begin(), words_.end());
  return result::request;
}

// Words between blanks; "..." knows \n \r \t \b \a \xHH, '...' only \'. A quote that ends is
// followed by a blank.
bool request_parser::split(std::string_view s) {
  words_.clear();
  for (std::size_t i = 0;;) {
    while (i < s.size() && blank(s[i])) ++i;
    if (i == s.size()) return true;
    std::string word;
    char quote = 0;
    for (;; ++i) {
      if (i == s.size()) {
        if (quote != 0) return false;
        break;
      }
      const char c = s[i];
      if (quote == 0) {
        if (blank(c)) break;
        if (c == '"' || c == '\'') {
          quote = c;
        } else {
          word += c;
        }
      } else if (c == quote) {
        if (i + 1 < s.size() && !blank(s[i + 1])) return false;
        quote = 0;
      } else if (c == '\\' && quote == '"' && i + 1 < s.size()) {
        if (s[i + 1] == 'x' && i + 3 < s.size() && hex(s[i + 2]) >= 0 && hex(s[i + 3]) >= 0) {
          word += static_cast<char>(hex(s[i + 2]) * 16 + hex(s[i + 3]));
          i += 3;
        } else {
          static constexpr std::string_view names = "nrtba", values = "\n\r\t\b\a";
          const std::size_t k = names.find(s[++i]);
          word += k == std::string_view::npos ? s[i] : values[k];
        }
      } else if (c == '\\' && quote == '\'' && i + 1 < s.size() && s[i + 1] == '\'') {
        word += s[++i];
      } else {
        word += c;
      }
    }
    words_.push_back(std::move(word));
  }
}

void reply::line(char kind, std::string_view s) {
  out_ += kind;
  // The text may quote a client's: a line's end in it would be a reply of its own.
  for (const char c : s) out_ += c == '\r' || c == '\n' ? ' ' : c;
  out_ += "\r\n";
}

void reply::head(char kind, std::int64_t n) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, n).ptr;
  out_ += kind;
  out_.append(digits, end);
  out_ += "\r\n";
}

void reply::integer(std::int64_t n) { head(':', n); }
void reply::array(std::size_t n) { head('*', static_cast<std::int64_t>(n)); }
void reply::bulk(std::string_view s) {
  if (out_.size() - begin_ > max_reply_ || s.size() > max_reply_ - (out_.size() - begin_))
    throw too_big();
  head('$', static_cast<std::int64_t>(s.size()));
  out_.append(s).append("\r\n");
}

void reply::clear() {
  begin_ = 0;
  if (out_.capacity() > keep) {
    std::string().swap(out_);
  } else {
    out_.clear();
  }
}

}  // namespace kv
