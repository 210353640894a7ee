// SPDX-License-Identifier: Apache-2.0
// One cancellation, in its two halves: begin() may run anywhere, finish() runs user code.
#pragma once

#include "context_tree/node.h"

namespace weft::detail {

class cancellation {
 public:
  // Claims and publishes root and all below. The caller holds a reference to it until finish().
  void begin(cancel_node* root, errc why, const std::exception_ptr& cause) noexcept;
  // Starts functions, requests stops, drops references.
  void finish() noexcept;

 private:
  struct passes;
  cancel_node* root_ = nullptr;     // null: somebody else was first, and there is nothing to do
  tree_link* functions_ = nullptr;  // to start, each with a reference; by tree_link::next
  tree_link* others_ = nullptr;     // children that somebody else had claimed, likewise
  cancel_node* claimed_ = nullptr;  // the last first; by claimed_next; all but the root with a
                                    // reference
};

}  // namespace weft::detail
