// SPDX-License-Identifier: Apache-2.0
// One cancellation, in its two halves: begin() may run anywhere, finish() runs user code.
#pragma once

#include "context_tree/node.h"

namespace weft::detail {

class cancellation {
 public:
  // Claims root and all below, and lets it be known. The caller holds a reference until finish().
  void begin(cancel_node* root, errc why, const std::exception_ptr& cause) noexcept;
  // Starts functions, requests stops, drops references.
  void finish() noexcept;

 private:
  struct passes;
  cancel_node* root_ = nullptr;
  // To start, each with a reference; by tree_link::next. And orphans, to free.
  tree_link* functions_ = nullptr;
  tree_link* others_ = nullptr;  // children that somebody else had claimed, likewise
  // Parents first; by claimed_next; all but the root with a reference. Null: somebody else was
  // first, and all but the stop source is his.
  cancel_node* claimed_ = nullptr;
};

}  // namespace weft::detail
