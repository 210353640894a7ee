// SPDX-License-Identifier: Apache-2.0
// What the kernel says about a process, in /proc.
#include "facts.h"

#include <algorithm>
#include <dirent.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>

#include "failure.h"

namespace weft::tool {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string read_link(const std::string& path) {
  char text[256];
  const ssize_t n = ::readlink(path.c_str(), text, sizeof text);
  return {text, n > 0 ? static_cast<std::size_t>(n) : 0};
}

}  // namespace

std::string proc(pid_t pid, const char* what) {
  return "/proc/" + std::to_string(pid) + '/' + what;
}

std::vector<std::string> entries(const std::string& dir) {
  std::vector<std::string> all;
  if (DIR* d = ::opendir(dir.c_str())) {
    while (const dirent* e = ::readdir(d)) all.emplace_back(e->d_name);
    ::closedir(d);
  }
  return all;
}

bool has_thread(pid_t pid, const char* name) {
  for (const std::string& tid : entries(proc(pid, "task"))) {
    const std::string comm = read_text(proc(pid, "task/") + tid + "/comm");
    if (comm.starts_with(name)) return true;
  }
  return false;
}

std::string environment_of(pid_t pid, const std::string& name) {
  std::istringstream in(read_text(proc(pid, "environ")));
  for (std::string line; std::getline(in, line, '\0');) {
    if (line.starts_with(name + '=')) return line.substr(name.size() + 1);
  }
  return {};
}

bool has_other_root(pid_t pid) {
  const std::string theirs = read_link(proc(pid, "ns/mnt"));
  return !theirs.empty() && theirs != read_link("/proc/self/ns/mnt");
}

facts facts_of(pid_t pid) {
  const failure none{status::no_process, "there is no process " + std::to_string(pid)};
  facts f;
  f.pid = f.inner_pid = pid;
  std::istringstream lines(read_text(proc(pid, "status")));
  if (lines.str().empty()) throw none;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string key;
    std::getline(in, key, ':');
    if (key == "Name") {
      in >> std::ws;
      std::getline(in, f.name);
    } else if (key == "State") {
      in >> f.state;
    } else if (key == "Uid") {
      in >> f.uid >> f.uid;  // real, effective
    } else if (key == "NSpid") {
      for (pid_t p = 0; in >> p;) f.inner_pid = p;  // ours first, its own last
    } else if (key == "VmRSS") {
      in >> f.memory;
      f.memory *= 1024;
    }
  }
  if (f.state == 'Z' || f.state == 'X') throw none;
  // Behind the name, which may have blanks and brackets: state is the 3rd, utime the 14th.
  const std::string stat = read_text(proc(pid, "stat"));
  std::istringstream in(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string skip;
  for (int i = 3; i < 14; ++i) in >> skip;
  double user = 0, system = 0;
  if (in >> user >> system)
    f.cpu_seconds = (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return f;
}

}  // namespace weft::tool
