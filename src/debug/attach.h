// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::rt {

// The process ends: nobody can attach any more. Does nothing in the child of a fork.
void remove_attach_socket() noexcept;

}  // namespace weft::rt
