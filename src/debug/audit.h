// SPDX-License-Identifier: Apache-2.0
// audit() with a hook for tests: break(arg) runs with the world stopped (or, for the checks of the
// idle lists, under the scheduler lock), just before the checks, mend(arg) just after.
#pragma once

namespace weft::rt {

enum class audit_phase { idle_lists, stopped, locks };

struct audit_sabotage {
  audit_phase when = audit_phase::stopped;
  void (*break_it)(void*) = nullptr;
  void (*mend_it)(void*) = nullptr;
  void* arg = nullptr;
};

int run_audit(const audit_sabotage& s) noexcept;

}  // namespace weft::rt
