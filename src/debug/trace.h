// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::rt {

// The process dies: what is in memory goes to the file. On the dump thread, once.
void flush_trace_on_fatal() noexcept;

}  // namespace weft::rt
