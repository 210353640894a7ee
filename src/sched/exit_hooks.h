// SPDX-License-Identifier: Apache-2.0
// Exit hooks: what at_exit registered, run once at the end of main or by weft::exit.
#pragma once

namespace weft::rt {

void run_exit_hooks(int status);

}  // namespace weft::rt
