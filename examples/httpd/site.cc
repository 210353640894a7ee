// SPDX-License-Identifier: Apache-2.0
// From a target to a file. The path is walked one component at a time from the root's descriptor,
// and no component may be "..", empty or a symbolic link: so there is no way out, and no moment
// between a check and its use.
#include "httpd/site.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace httpd {

file& file::operator=(file&& o) noexcept {
  std::swap(fd_, o.fd_);
  return *this;
}
file::~file() {
  if (fd_ >= 0) ::close(fd_);
}

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 206:
      return "Partial Content";
    case 301:
      return "Moved Permanently";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Payload Too Large";
    case 416:
      return "Range Not Satisfiable";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Internal Server Error";
  }
}

answer error(int status, std::string headers) {
  return {.status = status,
          .headers = std::move(headers),
          .body = std::to_string(status) + " " + std::string(reason(status)) + "\n"};
}

bool decode(std::string_view text, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      unsigned value = 0;
      const char* first = text.data() + i + 1;
      if (text.size() - i < 3 || std::from_chars(first, first + 2, value, 16).ptr != first + 2)
        return false;
      c = static_cast<char>(value);
      i += 2;
    }
    if (c == '\0') return false;
    out += c;
  }
  return true;
}

std::string_view mime_type(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> types[] = {
      {".html", "text/html; charset=utf-8"},
      {".htm", "text/html; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".txt", "text/plain; charset=utf-8"},
      {".md", "text/plain; charset=utf-8"},
      {".json", "application/json"},
      {".svg", "image/svg+xml"},
      {".png", "image/png"},
      {".jpg", "image/jpeg"},
      {".jpeg", "image/jpeg"},
      {".gif", "image/gif"},
      {".ico", "image/x-icon"},
      {".wasm", "application/wasm"},
      {".pdf", "application/pdf"},
      {".webp", "image/webp"},
  };
  for (const auto& [ending, type] : types) {
    if (name.ends_with(ending)) return type;
  }
  return "application/octet-stream";
}

range_kind parse_range(std::string_view text, std::uint64_t size, std::uint64_t& offset,
                       std::uint64_t& length) {
  if (!text.starts_with("bytes=")) return range_kind::none;
  text.remove_prefix(6);
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return range_kind::none;
  const auto number = [](std::string_view s, std::uint64_t& n) {
    const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), n);
    return ec == std::errc() && end == s.data() + s.size();
  };
  const std::string_view from = text.substr(0, dash), to = text.substr(dash + 1);
  std::uint64_t first = 0, last = 0;
  if (from.empty()) {  // the last so many
    if (!number(to, last)) return range_kind::none;
    if (last == 0 || size == 0) return range_kind::unsatisfiable;
    length = std::min(last, size);
    offset = size - length;
    return range_kind::part;
  }
  if (!number(from, first)) return range_kind::none;
  if (to.empty()) {
    last = UINT64_MAX;
  } else if (!number(to, last) || last < first) {
    return range_kind::none;
  }
  if (first >= size) return range_kind::unsatisfiable;
  offset = first;
  length = std::min(last, size - 1) - first + 1;
  return range_kind::part;
}

site site::at(const std::string& directory) {
  site s;
  s.root_ = file(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!s.root_) throw std::system_error(errno, std::system_category(), "--root " + directory);
  return s;
}

std::string_view path_of(std::string_view target) {
  static constexpr std::string_view scheme = "http://";
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  if (std::ranges::equal(target.substr(0, scheme.size()), scheme, same)) {
    target.remove_prefix(scheme.size());
    const std::size_t host = std::min(target.find_first_of("/?#"), target.size());
    if (host == 0) return {};
    target.remove_prefix(host);
    if (target.empty() || target[0] == '?') return "/";
  }
  return target.substr(0, target.find('?'));
}

answer site::get(std::string_view target, std::string_view range) const {
  const std::string_view raw = path_of(target);
  std::string path;
  if (!raw.starts_with('/') || !decode(raw, path)) return error(400);
  if (!root_) return path == "/" ? answer{.body = "Hello from weft.\n"} : error(404);

  file at;  // the directory reached, if not the root
  std::string_view rest = std::string_view(path).substr(1);
  for (;;) {
    const std::size_t slash = rest.find('/');
    std::string name(rest.substr(0, slash));
    const bool last = slash == std::string_view::npos;
    if (last && name.empty()) name = "index.html";
    if (name.empty() || name == "." || name == "..") return error(404);
    const int dir = at ? at.fd() : root_.fd();
    // O_NONBLOCK: opening a FIFO must not wait for its writer.
    const int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (last ? 0 : O_DIRECTORY);
    file f(::openat(dir, name.c_str(), flags));
    if (!f) return error(errno == EMFILE || errno == ENFILE || errno == EIO ? 500 : 404);
    if (last) {
      struct stat st;
      if (::fstat(f.fd(), &st) != 0) return error(500);
      // Links relative to a page want its directory to end with a slash.
      if (S_ISDIR(st.st_mode)) return error(301, "Location: " + std::string(raw) + "/\r\n");
      if (!S_ISREG(st.st_mode)) return error(404);
      return send(std::move(f), name, range);
    }
    at = std::move(f);
    rest.remove_prefix(slash + 1);
  }
}

answer site::send(file f, std::string_view name, std::string_view range) const {
  struct stat st;
  if (::fstat(f.fd(), &st) != 0) return error(500);
  answer a;
  a.size = static_cast<std::uint64_t>(st.st_size);
  a.type = mime_type(name);
  a.headers = "Accept-Ranges: bytes\r\n";
  const std::string whole = std::to_string(a.size);
  switch (parse_range(range, a.size, a.offset, a.size)) {
    case range_kind::none:
      break;
    case range_kind::unsatisfiable:
      return error(416, "Content-Range: bytes */" + whole + "\r\n");
    case range_kind::part:
      a.status = 206;
      a.headers += "Content-Range: bytes " + std::to_string(a.offset) + "-" +
                   std::to_string(a.offset + a.size - 1) + "/" + whole + "\r\n";
  }
  a.content = std::move(f);
  return a;
}

}  // namespace httpd
