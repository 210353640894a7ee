// SPDX-License-Identifier: Apache-2.0
// What the server has to offer: the files below a directory, or a greeting. Knows nothing of HTTP's
// syntax nor of connections.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace httpd {

// An owner of a descriptor.
class file {
 public:
  file() noexcept = default;
  explicit file(int fd) noexcept : fd_(fd) {}
  file(file&& o) noexcept : fd_(o.fd_) { o.fd_ = -1; }
  file& operator=(file&& o) noexcept;
  ~file();
  int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct answer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string headers = {};  // further ones, each with its \r\n
  std::string body = {};     // if there is no file
  file content = {};
  std::uint64_t offset = 0, size = 0;  // what to send of the file
};

answer error(int status, std::string headers = {});

class site {
 public:
  site() = default;                              // the greeting
  static site at(const std::string& directory);  // throws std::system_error

  // target: as in the request line. range: the header's value or nothing.
  answer get(std::string_view target, std::string_view range) const;

 private:
  answer send(file f, std::string_view name, std::string_view range) const;
  file root_;
};

// Of a target, without its query, as it stands. Every server has to understand the form that
// proxies are sent, http://host/path (RFC 9112, 3.2.2); the host is not looked at, there is one
// site.
std::string_view path_of(std::string_view target);
// Undoes %XX; false if one is broken or a NUL.
bool decode(std::string_view text, std::string& out);
std::string_view mime_type(std::string_view name);
std::string_view reason(int status);

enum class range_kind { none, part, unsatisfiable };
// One range of bytes of a file of `size`; anything else that the header may say is ignored, as the
// standard allows.
range_kind parse_range(std::string_view text, std::uint64_t size, std::uint64_t& offset,
                       std::uint64_t& length);

}  // namespace httpd
