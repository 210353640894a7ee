// SPDX-License-Identifier: Apache-2.0
// What only tests ask of the tree.
#pragma once

#include <cstddef>

#include "weft/context.hpp"

namespace weft::detail {

// Children, what is left of them, functions of after_cancel and waiters that a cancellation of ctx
// would reach directly.
std::size_t child_count(const context& ctx) noexcept;

}  // namespace weft::detail
