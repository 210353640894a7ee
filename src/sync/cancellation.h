// SPDX-License-Identifier: Apache-2.0
// A context that may end a wait, as a time-out does. Declared before the alarm and after the
// record; gone, and certain not to be ending it, when destroyed.
#pragma once

#include "context_tree/watch.h"
#include "sync/wait_list.h"

namespace weft::detail {

class cancellation : private cancel_watch {
 public:
  cancellation(waiting& who, const context* ctx) noexcept : who_(who) {
    if (ctx == nullptr) return;
    watches_ = begin(
        *ctx, [](cancel_watch* self) noexcept { static_cast<cancellation*>(self)->who_.expire(); });
    came_ = !watches_;
  }
  cancellation(const cancellation&) = delete;
  cancellation& operator=(const cancellation&) = delete;
  ~cancellation() {
    if (watches_) end();
  }
  bool came() const noexcept { return came_; }  // before the wait began

 private:
  waiting& who_;
  bool watches_ = false;
  bool came_ = false;
};

}  // namespace weft::detail
