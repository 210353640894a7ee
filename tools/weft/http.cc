// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1, as much of it as the attach server speaks: one request a connection, Content-Length.
#include "http.h"

#include <algorithm>
#include <charconv>

#include "failure.h"

namespace weft::tool {
namespace {

constexpr std::size_t longest_head = 16 * 1024;

template <class T>
bool number(std::string_view text, T& v) {
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), v);
  return err == std::errc() && end == text.data() + text.size();
}

bool same_name(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return small(x) == small(y); });
}

}  // namespace

std::optional<answer_head> parse_head(std::string_view text) {
  answer_head h;
  bool has_length = false;
  const std::string_view line = text.substr(0, text.find("\r\n"));
  if (!line.starts_with("HTTP/1.") || line.size() < 12 || !number(line.substr(9, 3), h.status))
    return std::nullopt;
  for (std::size_t at = text.find("\r\n"); at != std::string_view::npos;) {
    const std::size_t next = text.find("\r\n", at + 2);
    const std::string_view field = text.substr(at + 2, next - at - 2);
    at = next;
    const std::size_t colon = field.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view value = field.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
    if (same_name(field.substr(0, colon), "content-length")) {
      if (!number(value, h.length)) return std::nullopt;
      has_length = true;
    } else if (same_name(field.substr(0, colon), "weft-trace")) {
      h.trace_source = value;
    }
  }
  if (!has_length) return std::nullopt;
  return h;
}

answer_head get(connection& c, const std::string& target,
                const std::function<void(std::string_view)>& sink, double extra) {
  c.send("GET " + target + " HTTP/1.1\r\nHost: weft\r\nConnection: close\r\n\r\n");
  std::string head;
  std::size_t end = 0;
  while ((end = head.find("\r\n\r\n")) == std::string::npos) {
    if (head.size() > longest_head) throw failure{status::failed, "the answer makes no sense"};
    const std::string some = c.receive(extra);
    if (some.empty()) c.fail_at_end();
    head += some;
  }
  const std::optional<answer_head> h = parse_head(std::string_view(head).substr(0, end));
  if (!h) throw failure{status::failed, "the answer makes no sense"};
  std::string refusal;
  const auto take = [&](std::string_view part) {
    h->status == 200 ? sink(part) : static_cast<void>(refusal += part);
  };
  std::string some = head.substr(end + 4);
  for (std::uint64_t left = h->length;;) {
    const std::string_view part =
        std::string_view(some).substr(0, std::min<std::uint64_t>(left, some.size()));
    take(part);
    left -= part.size();
    if (left == 0) break;
    some = c.receive(0);
    if (some.empty()) c.fail_at_end();
  }
  if (h->status == 200) return *h;
  while (!refusal.empty() && refusal.back() == '\n') refusal.pop_back();
  throw failure{h->status == 403 ? status::not_permitted : status::failed,
                "process " + std::to_string(c.pid()) + " refuses: " + refusal};
}

std::string get(connection& c, const std::string& target) {
  std::string all;
  get(c, target, [&](std::string_view part) { all += part; });
  return all;
}

}  // namespace weft::tool
