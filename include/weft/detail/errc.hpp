// SPDX-License-Identifier: Apache-2.0
// weft's error codes; part of <weft/context.hpp>.
#pragma once

#include <system_error>
#include <type_traits>

#include <weft/detail/spawn.hpp>

namespace weft {

// Compared with the standard's conditions: canceled is operation_canceled, deadline_exceeded is
// timed_out, closed is bad_file_descriptor, unexpected_eof is io_error, not_pollable is
// operation_not_supported.
enum class errc { canceled = 1, deadline_exceeded, closed, unexpected_eof, not_pollable };

WEFT_API const std::error_category& weft_category() noexcept;  // name(): "weft"
inline std::error_code make_error_code(errc e) noexcept {
  return {static_cast<int>(e), weft_category()};
}

}  // namespace weft

template <>
struct std::is_error_code_enum<weft::errc> : std::true_type {};
