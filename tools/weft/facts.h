// SPDX-License-Identifier: Apache-2.0
// What the kernel says about a process, in /proc.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace weft::tool {

struct facts {
  pid_t pid = 0;
  pid_t inner_pid = 0;  // in its own namespace
  uid_t uid = 0;        // effective
  char state = '?';     // as ps has it
  std::string name;
  double cpu_seconds = 0, memory = 0;  // used; bytes resident
};
// Throws failure, status::no_process.
facts facts_of(pid_t pid);

// Whether it has a thread whose name begins so.
bool has_thread(pid_t pid, const char* name);
// One variable of the environment that it was started with; empty: none, or not for us to see.
std::string environment_of(pid_t pid, const std::string& name);
// Whether it sees other files than we do.
bool has_other_root(pid_t pid);

// The names in a directory; none if it cannot be read.
std::vector<std::string> entries(const std::string& dir);
std::string proc(pid_t pid, const char* what);  // /proc/PID/what

}  // namespace weft::tool
