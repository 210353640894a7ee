// SPDX-License-Identifier: Apache-2.0
// A context that may end a wait, as a time-out does. Declared before the alarm and after the
// record; gone, and certain not to be ending it, when destroyed.
#pragma once

#include "context_tree/watch.h"
#include "sync/wait_list.h"

namespace weft::detail {

class cancel_alarm : private cancel_watch {
 public:
  cancel_alarm(waiting& who, const context* ctx) noexcept : who_(who) {
    if (ctx == nullptr) return;
    watches_ = begin(
        *ctx, [](cancel_watch* self) noexcept { static_cast<cancel_alarm*>(self)->who_.expire(); });
    came_ = !watches_;
  }
  cancel_alarm(const cancel_alarm&) = delete;
  cancel_alarm& operator=(const cancel_alarm&) = delete;
  ~cancel_alarm() {
    if (watches_) end();
  }
  bool came() const noexcept { return came_; }  // before the wait began

 private:
  waiting& who_;
  bool watches_ = false;
  bool came_ = false;
};

}  // namespace weft::detail
