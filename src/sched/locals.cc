// SPDX-License-Identifier: Apache-2.0
// weft::local. In a goroutine the values hang on its G; on a plain thread on a thread_local list
// that is destroyed with the thread. Runs on the goroutine's own stack; allocates, so never called
// from the scheduler.
#include "sched/locals.h"

#include "core/current.h"
#include "weft/go.hpp"

namespace weft::rt {
namespace {

void destroy(local_node*& list) noexcept {
  while (local_node* n = list) {  // a destructor may make new values
    list = n->next;
    n->destroy(n->value);
    delete n;
  }
}

struct thread_list {
  local_node* head = nullptr;
  ~thread_list() { destroy(head); }
};
thread_local thread_list plain;

// The address is used up before anything can switch.
__attribute__((noinline)) local_node** list_of_thread() noexcept { return &plain.head; }

local_node** current_list() noexcept {
  G* g = current_g();
  return g != nullptr ? &g->locals : list_of_thread();
}

}  // namespace

void destroy_locals(G* g) noexcept { destroy(g->locals); }

}  // namespace weft::rt

namespace weft::detail {

std::uint64_t local_key() noexcept {
  static constinit rt::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, rt::memory_order_relaxed);
}

void* local_find(std::uint64_t key) noexcept {
  for (rt::local_node* n = *rt::current_list(); n != nullptr; n = n->next) {
    if (n->key == key) return n->value;
  }
  return nullptr;
}

void local_add(std::uint64_t key, void* value, void (*destroy)(void*)) {
  auto* n = new rt::local_node{key, value, destroy, nullptr};
  rt::local_node** list = rt::current_list();
  n->next = *list;
  *list = n;
}

void local_remove(std::uint64_t key) noexcept {
  rt::local_node** at = rt::current_list();
  while (*at != nullptr && (*at)->key != key) at = &(*at)->next;
  rt::local_node* n = *at;
  if (n == nullptr) return;
  *at = n->next;
  n->destroy(n->value);
  delete n;
}

}  // namespace weft::detail
