// SPDX-License-Identifier: Apache-2.0
// The category "weft": Go's texts, the standard's conditions. Constant-initialised and never
// destroyed, as codes may be compared before and after main. Runs on the caller's stack.
#include <string>

#include "weft/detail/errc.hpp"

namespace weft {
namespace {

class category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "weft"; }
  std::string message(int code) const override {
    switch (static_cast<errc>(code)) {
      case errc::canceled:
        return "context canceled";
      case errc::deadline_exceeded:
        return "context deadline exceeded";
      case errc::closed:
        return "use of closed network connection";
      case errc::unexpected_eof:
        return "unexpected EOF";
      case errc::not_pollable:
        return "not pollable";
    }
    return "unknown error";
  }
  std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<errc>(code)) {
      case errc::canceled:
        return std::errc::operation_canceled;
      case errc::deadline_exceeded:
        return std::errc::timed_out;
      case errc::closed:
        return std::errc::bad_file_descriptor;
      case errc::unexpected_eof:
        return std::errc::io_error;
      case errc::not_pollable:
        return std::errc::operation_not_supported;
    }
    return {code, *this};
  }
};

// In a union: its destructor never runs.
union holder {
  category c;
  constexpr holder() noexcept : c() {}
  ~holder() {}  // NOLINT(modernize-use-equals-default)
};
constinit holder the_category;

}  // namespace

const std::error_category& weft_category() noexcept { return the_category.c; }

}  // namespace weft
