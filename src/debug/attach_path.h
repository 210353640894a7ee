// SPDX-License-Identifier: Apache-2.0
// Where the socket of debug::attach lies, for the process that makes it and for the tool that looks
// for it (tools/weft), which knows no more than a PID.
//
// <directory>/<pid>.<pid namespace>: $XDG_RUNTIME_DIR/weft if that is ours alone, else
// /tmp/weft-<uid>. The PID is the process's own, the namespace is the number that says of which
// kind: two containers may share a directory, and a PID.
#pragma once

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

namespace weft::attach_path {

inline constexpr std::size_t longest = sizeof(sockaddr_un::sun_path) - 1;

// What is wrong with a directory that should be uid's and nobody else's; empty: nothing. Not
// through a symbolic link: whoever made that may send us anywhere.
inline std::string wrong_with(const std::string& dir, uid_t uid) {
  struct stat st {};
  if (::lstat(dir.c_str(), &st) != 0) return dir + ": " + std::strerror(errno);
  if (S_ISLNK(st.st_mode)) return dir + " is a symbolic link";
  if (!S_ISDIR(st.st_mode)) return dir + " is not a directory";
  if (st.st_uid != uid) return dir + " belongs to user " + std::to_string(st.st_uid);
  if ((st.st_mode & 077) != 0) return dir + " is open to other users";
  return {};
}

struct name {
  pid_t pid = 0;
  std::uint64_t space = 0;  // 0: not known

  std::string text() const { return std::to_string(pid) + '.' + std::to_string(space); }
};

// False: not the name of such a socket.
inline bool parse(std::string_view text, name& n) {
  const char* const end = text.data() + text.size();
  const auto pid = std::from_chars(text.data(), end, n.pid);
  if (pid.ec != std::errc() || n.pid <= 0 || pid.ptr == end || *pid.ptr != '.') return false;
  const auto space = std::from_chars(pid.ptr + 1, end, n.space);
  return space.ec == std::errc() && space.ptr == end;
}

inline std::string in_runtime_dir(std::string_view base) { return std::string(base) + "/weft"; }
inline std::string in_tmp(uid_t uid) { return "/tmp/weft-" + std::to_string(uid); }
// Room for the longest name.
inline bool fits(std::string_view dir) { return dir.size() + 1 + 10 + 1 + 20 <= longest; }

// Of the calling process. /proc/self/ns/pid is a link to `pid:[4026531836]`.
inline name own_name() {
  char link[64];
  const ssize_t n = ::readlink("/proc/self/ns/pid", link, sizeof link);
  const std::string_view text(link, n > 0 ? static_cast<std::size_t>(n) : 0);
  name own{::getpid(), 0};
  if (const std::size_t at = text.find('['); at != std::string_view::npos)
    std::from_chars(text.data() + at + 1, text.data() + text.size(), own.space);
  return own;
}

}  // namespace weft::attach_path
