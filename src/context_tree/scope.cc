// SPDX-License-Identifier: Apache-2.0
// The context of a scope, made when it is first asked for. Runs on the caller's stack.
#include "weft/go.hpp"

namespace weft {

detail::context_node* scope::make_node() const {
  detail::context_node* up = parent_.get() != nullptr ? parent_.get() : detail::background_node();
  detail::context_node* n = detail::make_cancel_node(up);
  n->release();  // one of the two will do
  detail::context_node* is = nullptr;
  // Release: with node()'s acquire. Acquire: with the release of the one who was faster.
  if (node_.compare_exchange_strong(is, n, std::memory_order_acq_rel, std::memory_order_acquire))
    return n;
  n->release();
  return is;
}

void scope::end_context() noexcept {
  detail::context_node* n = node_.load(std::memory_order_relaxed);
  detail::cancel_context(n, nullptr);
  n->release();
}

}  // namespace weft
