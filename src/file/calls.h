// SPDX-License-Identifier: Apache-2.0
// System calls on files, with the error as a value: the result, or minus the errno. Those that may
// take long are made where they hold up no P. Never inlined: the address of errno must not be kept
// where a goroutine may change its thread (DESIGN 2.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/stat.h>
#include <sys/types.h>

namespace weft::detail {

// Reading, writing and syncing what the poller cannot watch. offset < 0: at the file's position.
// quiet: it may be a pipe, and must not raise SIGPIPE. through: a write waits for the disk.
struct file_call {
  enum class op : std::uint8_t { read, write, sync };
  op what;
  int fd = -1;
  void* data = nullptr;
  std::size_t size = 0;
  std::int64_t offset = -1;
  bool quiet = false;
  bool through = false;
};

// Each gives the same results; which one a file uses is decided when it is opened.
using perform_fn = long (*)(const file_call&);
long perform_blocking(const file_call& c);  // the thread waits in the kernel, its P is given away

namespace calls {

// At once, on a descriptor in non-blocking mode; no SIGPIPE.
long read_now(int fd, void* b, std::size_t n) noexcept;
long write_now(int fd, const void* b, std::size_t n) noexcept;
// May take long.
int open(const char* path, int flags, mode_t mode);
int close(int fd);
int close_now(int fd) noexcept;  // not announced
int truncate(int fd, std::int64_t size);
int stat(int fd, struct ::stat* out);
// Never do.
int pipe(int fd[2]) noexcept;
std::int64_t seek(int fd, std::int64_t offset, int whence) noexcept;
int status_flags(int fd) noexcept;
int set_nonblocking(int fd) noexcept;

}  // namespace calls
}  // namespace weft::detail
