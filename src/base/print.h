// SPDX-License-Identifier: Apache-2.0
// Formatting without malloc, stdio or locale: text goes into a fixed buffer on the caller's stack
// and from there to a file descriptor by write(2). Everything that must speak in a broken process
// (fatal, audit, schedtrace) prints through this.
//
// Runs on any stack, in signal handlers too. errno is left as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace weft::rt {

class printer {
 public:
  explicit printer(int fd) noexcept : fd_(fd) {}
  printer(const printer&) = delete;
  printer& operator=(const printer&) = delete;
  ~printer() { flush(); }

  printer& operator<<(std::string_view s) noexcept {
    while (!s.empty()) {
      if (n_ == sizeof buf_) flush();
      const std::size_t k = s.size() < sizeof buf_ - n_ ? s.size() : sizeof buf_ - n_;
      std::memcpy(buf_ + n_, s.data(), k);
      n_ += k;
      s.remove_prefix(k);
    }
    return *this;
  }
  printer& operator<<(const char* s) noexcept { return *this << std::string_view(s); }
  printer& operator<<(char c) noexcept { return *this << std::string_view(&c, 1); }
  printer& operator<<(std::uint64_t v) noexcept { return digits(v, 10); }
  printer& operator<<(std::uint32_t v) noexcept { return digits(v, 10); }
  printer& operator<<(std::int64_t v) noexcept {
    if (v < 0) *this << '-';
    return digits(v < 0 ? 0 - static_cast<std::uint64_t>(v) : static_cast<std::uint64_t>(v), 10);
  }
  printer& operator<<(int v) noexcept { return *this << static_cast<std::int64_t>(v); }
  printer& hex(std::uint64_t v) noexcept { return (*this << "0x").digits(v, 16); }

  void flush() noexcept;

 private:
  printer& digits(std::uint64_t v, unsigned base) noexcept {
    char tmp[20];
    std::size_t n = 0;
    do {
      tmp[n++] = "0123456789abcdef"[v % base];
      v /= base;
    } while (v != 0);
    while (n != 0) *this << tmp[--n];
    return *this;
  }

  int fd_;
  std::size_t n_ = 0;
  char buf_[512];
};

}  // namespace weft::rt
