// SPDX-License-Identifier: Apache-2.0
// A cursor over the byte streams of ELF and DWARF. It never reads past its end: what is not there
// reads as zero, and failed() says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::rt {

class cursor {
 public:
  constexpr cursor() noexcept = default;
  cursor(const std::uint8_t* p, const std::uint8_t* end) noexcept : p_(p), end_(end) {}

  const std::uint8_t* at() const noexcept { return p_; }
  const std::uint8_t* end() const noexcept { return end_; }
  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - p_); }
  bool done() const noexcept { return p_ >= end_; }
  bool failed() const noexcept { return failed_; }
  void fail() noexcept {
    failed_ = true;
    p_ = end_;
  }

  template <class T>
  T fixed() noexcept {
    T v{};
    if (left() < sizeof v) {
      fail();
      return v;
    }
    std::memcpy(&v, p_, sizeof v);
    p_ += sizeof v;
    return v;
  }
  std::uint64_t uint(unsigned bytes) noexcept {
    switch (bytes) {
      case 1:
        return fixed<std::uint8_t>();
      case 2:
        return fixed<std::uint16_t>();
      case 3: {
        const std::uint64_t low = fixed<std::uint16_t>();
        return low | static_cast<std::uint64_t>(fixed<std::uint8_t>()) << 16;
      }
      case 4:
        return fixed<std::uint32_t>();
      case 8:
        return fixed<std::uint64_t>();
      default:
        fail();
        return 0;
    }
  }
  std::uint64_t uleb() noexcept {
    std::uint64_t v = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto b = fixed<std::uint8_t>();
      if (shift < 64) v |= static_cast<std::uint64_t>(b & 0x7f) << shift;
      if ((b & 0x80) == 0) return v;
    }
  }
  std::int64_t sleb() noexcept {
    std::uint64_t v = 0;
    unsigned shift = 0;
    std::uint8_t b;
    do {
      b = fixed<std::uint8_t>();
      if (shift < 64) v |= static_cast<std::uint64_t>(b & 0x7f) << shift;
      shift += 7;
    } while ((b & 0x80) != 0);
    if (shift < 64 && (b & 0x40) != 0) v |= ~std::uint64_t{0} << shift;
    return static_cast<std::int64_t>(v);
  }
  const char* text() noexcept {
    const void* zero = left() != 0 ? std::memchr(p_, 0, left()) : nullptr;
    if (zero == nullptr) {
      fail();
      return "";
    }
    const char* s = reinterpret_cast<const char*>(p_);
    p_ = static_cast<const std::uint8_t*>(zero) + 1;
    return s;
  }
  void skip(std::uint64_t n) noexcept {
    if (n > left()) {
      fail();
    } else {
      p_ += n;
    }
  }
  // The next n bytes, which are skipped here.
  cursor part(std::uint64_t n) noexcept {
    const std::uint8_t* from = p_;
    skip(n);
    return failed_ ? cursor() : cursor(from, p_);
  }

 private:
  const std::uint8_t* p_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  bool failed_ = false;
};

}  // namespace weft::rt
