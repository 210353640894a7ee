// SPDX-License-Identifier: Apache-2.0
// Goroutine-local values: a short list a goroutine owns, destroyed when it exits, newest first.
#pragma once

#include "core/g.h"

namespace weft::rt {

struct local_node {
  std::uint64_t key;
  void* value;
  void (*destroy)(void*);
  local_node* next;
};

void destroy_locals(G* g) noexcept;

}  // namespace weft::rt
