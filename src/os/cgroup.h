// SPDX-License-Identifier: Apache-2.0
// The CPU limit that control groups put on this process, v1 or v2, and the default number of Ps
// that follows.
//
// Three layers, each usable alone:
//   - parsers: pure functions over text, or over a descriptor byte by byte, for the limit files,
//     /proc/self/cgroup and /proc/self/mountinfo;
//   - cpu_limit: finds our cgroup, keeps the place, and reads the limit of it and of every ancestor
//     as often as it is asked (the monitor asks once a second);
//   - default_procs: CPUs and limit in, number of Ps out.
//
// Everything here runs at start-up and in the monitor thread, on any stack with 12 KiB to spare: no
// malloc, no stdio, no exceptions, no libc locks, no descriptor kept open, errno left as it was. A
// `cpu_limit` is used by one thread at a time; the caller sees to that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::rt {

enum class cgroup_error : std::uint8_t {
  none,
  no_cgroup,   // in no cgroup with a CPU controller, or it is not mounted where we can see it
  malformed,   // a file does not have the form the kernel gives it
  too_long,    // a path longer than the kernel would accept
  bad_escape,  // a backslash in mountinfo that three octal digits do not follow
  unreadable,  // there, but refused (permissions, a directory in place of a file)
  again,       // could not be asked just now (out of descriptors or memory)
};

template <class T>
struct parsed {
  T value{};
  cgroup_error error = cgroup_error::none;
  constexpr bool ok() const noexcept { return error == cgroup_error::none; }
};

enum class cgroup_version : std::uint8_t { unknown, v1, v2 };

// `quota_us` of CPU time in each `period_us`; no limit while the quota is negative.
struct cpu_quota {
  std::int64_t quota_us = -1;
  std::int64_t period_us = 1;
  constexpr bool limited() const noexcept { return quota_us >= 0; }
  constexpr double ratio() const noexcept {
    return static_cast<double>(quota_us) / static_cast<double>(period_us);
  }
};

// The one of the two that allows less CPU time. Exact: compares the fractions, not their roundings.
cpu_quota tighter(cpu_quota a, cpu_quota b) noexcept;

// ceil(quota/period), at least 2 so that a goroutine which computes never stops all others, but
// never more than there are CPUs; `cpus` itself when there is no limit.
int default_procs(int cpus, cpu_quota limit) noexcept;

// A path of at most PATH_MAX bytes, its terminating zero included.
class path_buffer {
 public:
  static constexpr std::size_t capacity = 4096;

  constexpr path_buffer() noexcept = default;
  bool push(char c) noexcept {
    if (size_ + 1 >= capacity) return false;
    bytes_[size_++] = c;
    bytes_[size_] = '\0';
    return true;
  }
  bool append(std::string_view s) noexcept;
  bool assign(std::string_view s) noexcept {
    clear();
    return append(s);
  }
  void clear() noexcept { truncate(0); }
  void truncate(std::size_t n) noexcept {
    size_ = n;
    bytes_[n] = '\0';
  }
  std::size_t size() const noexcept { return size_; }
  const char* c_str() const noexcept { return bytes_; }
  std::string_view view() const noexcept { return {bytes_, size_}; }

 private:
  std::size_t size_ = 0;
  char bytes_[capacity]{};
};

// Bytes one at a time, from a text or from a descriptor through a small buffer of the caller's. The
// parsers below never look back, so no line is too long for them.
class byte_reader {
 public:
  static constexpr int eof = -1;

  explicit byte_reader(std::string_view text) noexcept
      : next_(text.data()), end_(text.data() + text.size()) {}
  byte_reader(int fd, char* buffer, std::size_t size) noexcept
      : fd_(fd), buffer_(buffer), size_(size) {}
  byte_reader(const byte_reader&) = delete;
  byte_reader& operator=(const byte_reader&) = delete;

  int get() noexcept {
    const int c = peek();
    if (c != eof) ++next_;
    return c;
  }
  int peek() noexcept {
    return next_ != end_ || refill() ? static_cast<unsigned char>(*next_) : eof;
  }
  // After eof: whether the bytes really ended or a read failed, and how.
  cgroup_error error() const noexcept { return error_; }

 private:
  bool refill() noexcept;

  const char* next_ = nullptr;
  const char* end_ = nullptr;
  int fd_ = -1;
  cgroup_error error_ = cgroup_error::none;
  char* buffer_ = nullptr;
  std::size_t size_ = 0;
};

// cpu.cfs_quota_us, cpu.cfs_period_us: one decimal number and a newline, nothing behind it. -1 is a
// number too; that it means 'none' in the quota file is for the reader of the pair to know.
parsed<std::int64_t> parse_v1_number(std::string_view text) noexcept;

// cpu.max: "max PERIOD\n" (no limit) or "QUOTA PERIOD\n".
parsed<cpu_quota> parse_v2_limit(std::string_view text) noexcept;

// Whether the comma-separated list names `cpu` itself (`cpuacct` and `cpuset` are other
// controllers).
bool contains_cpu(std::string_view list) noexcept;

// Decodes mountinfo's octal escapes into `out` and returns the decoded length. `out` may be
// `in.data()`: the result is never longer than what has been read.
parsed<std::size_t> unescape_path(std::string_view in, char* out, std::size_t capacity) noexcept;

// /proc/self/cgroup: the cgroup that holds our CPU controller. A v1 line that names `cpu` wins over
// the v2 line wherever either stands, since one controller cannot be in both hierarchies.
parsed<cgroup_version> parse_cpu_cgroup(byte_reader& in, path_buffer& out) noexcept;
inline parsed<cgroup_version> parse_cpu_cgroup(std::string_view text, path_buffer& out) noexcept {
  byte_reader in(text);
  return parse_cpu_cgroup(in, out);
}

// /proc/self/mountinfo: the first cgroup mount of that version which reaches `cgroup`. `out`
// becomes prefix + mount point + the rest of the cgroup's path below the mount's root; the value is
// the length of the first two, where the ancestors we can see end. On error `out` holds nothing of
// use (here and above).
parsed<std::size_t> parse_cpu_mount(byte_reader& in, std::string_view cgroup,
                                    cgroup_version version, path_buffer& out,
                                    std::string_view prefix = {}) noexcept;
inline parsed<std::size_t> parse_cpu_mount(std::string_view text, std::string_view cgroup,
                                           cgroup_version version, path_buffer& out,
                                           std::string_view prefix = {}) noexcept {
  byte_reader in(text);
  return parse_cpu_mount(in, cgroup, version, out, prefix);
}

// Where to look. The strings must outlive the cpu_limit; tests point them at a tree of their own.
struct cgroup_roots {
  const char* proc_cgroup = "/proc/self/cgroup";
  const char* mountinfo = "/proc/self/mountinfo";
  const char* mount_prefix = "";  // put in front of every mount point
};

class cpu_limit {
 public:
  // Besides reading the limit files, every so many reads look whether we were moved to another
  // cgroup, or, when there was none, whether there is one now.
  static constexpr int reads_per_check = 16;

  constexpr cpu_limit() noexcept = default;
  explicit constexpr cpu_limit(cgroup_roots roots) noexcept : roots_(roots) {}
  cpu_limit(const cpu_limit&) = delete;
  cpu_limit& operator=(const cpu_limit&) = delete;

  // The limit now. The value can be used whatever the error says: it is the tightest limit among
  // the levels that could be read, or the last known one when the kernel could not be asked
  // (`again`).
  parsed<cpu_quota> read() noexcept;

  // What was found, for reports: version unknown and an empty path while there is no cgroup.
  cgroup_version version() const noexcept {
    return levels_ != 0 ? version_ : cgroup_version::unknown;
  }
  std::string_view path() const noexcept { return levels_ != 0 ? dir_.view() : std::string_view{}; }
  // Our cgroup and its ancestors up to the mount's root.
  int levels() const noexcept { return levels_; }

 private:
  cgroup_error find(bool even_if_unmoved) noexcept;
  parsed<cpu_quota> read_levels() const noexcept;
  void forget() noexcept {
    levels_ = 0;
    last_ = {};
  }

  cgroup_roots roots_{};
  int until_check_ = 0;
  int levels_ = 0;  // 0: not found
  cgroup_version version_ = cgroup_version::unknown;
  cgroup_error found_ = cgroup_error::none;  // how the last search ended
  cpu_quota last_{};
  path_buffer own_{};  // as in /proc/self/cgroup, to notice a move
  path_buffer dir_{};  // the directory of its limit files
};

}  // namespace weft::rt
