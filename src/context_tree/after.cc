// SPDX-License-Identifier: Apache-2.0
// Functions of after_cancel. An entry stands in the list of its node, which holds it; of a
// cancellation and a stop, the one that gets the claim decides. Stop functions hold the node, so an
// entry that moves up the tree (leave) is one that nobody can stop.
//
// Runs on the caller's stack; the function in a goroutine of its own.
#include "context_tree/node.h"

namespace weft::detail {
namespace {

struct run_entry {
  after_entry* e;
  explicit run_entry(after_entry* entry) noexcept : e(entry) {}
  run_entry(run_entry&& o) noexcept : e(std::exchange(o.e, nullptr)) {}
  run_entry& operator=(run_entry&&) = delete;
  ~run_entry() {
    if (e != nullptr) e->release();
  }
  void operator()() const {
    struct finish {
      after_entry* e;
      ~finish() { e->finished.set(); }  // on goexit too
    } f{e};
    e->call();
  }
};

}  // namespace

void start_after(after_entry* e) noexcept {
  if (!e->has_started()) {  // it was stopped
    e->release();
    return;
  }
  spawn<closure<run_entry>>(run_entry(e));
}

void add_after(context_node* node, after_entry* e) noexcept {
  auto* n = static_cast<cancel_node*>(node->canceller());
  if (n == nullptr) {  // never
    e->release();
    return;
  }
  n->lock.lock();
  const bool live = n->reason == 0;  // keeps CX1
  if (live) n->link_lasting(e);
  n->lock.unlock();
  if (live) return;
  e->claim(true);
  await_over(n);  // f shall find it cancelled
  start_after(e);
}

bool stop_after(context_node* node, after_entry* e) noexcept {
  if (!e->claim(false)) return false;
  if (auto* n = static_cast<cancel_node*>(node->canceller())) {
    n->lock.lock();
    const bool linked = e->back != nullptr;
    bool let_go = false;
    if (linked) let_go = n->take_out_lasting(e);
    n->lock.unlock();
    if (linked) e->release();  // the list's
    if (let_go) n->release();
  }
  e->drop();
  return true;
}

}  // namespace weft::detail
