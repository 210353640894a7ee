// SPDX-License-Identifier: Apache-2.0
// System calls of the network, with the error as a value: the result, or minus the errno. Never
// inlined: the address of errno must not be kept where a goroutine may change its thread (DESIGN
// 2.1), and libc declares the function that returns it as one the compiler may call once.
//
// None of them raises SIGPIPE.
#pragma once

#include <cstddef>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

namespace weft::detail::sys {

long receive(int fd, void* b, std::size_t n) noexcept;
long receive(int fd, const iovec* v, std::size_t n) noexcept;
long receive_from(int fd, void* b, std::size_t n, sockaddr* from, socklen_t* size) noexcept;
long send(int fd, const void* b, std::size_t n) noexcept;
long send(int fd, const iovec* v, std::size_t n) noexcept;
long send_to(int fd, const void* b, std::size_t n, const sockaddr* to, socklen_t size) noexcept;
long send_file(int fd, int file, off_t offset, std::size_t n) noexcept;
long read_at(int fd, void* b, std::size_t n, off_t offset) noexcept;
// To anything, a pipe too; offset < 0: at its position.
long write(int fd, const void* b, std::size_t n, off_t offset) noexcept;
int accept(int fd, sockaddr* from, socklen_t* size) noexcept;
int connect(int fd, const sockaddr* to, socklen_t size) noexcept;
int connect_error(int fd) noexcept;         // 0: connected; EINPROGRESS: not yet
int socket(int family, int type) noexcept;  // non-blocking, close-on-exec
int bind(int fd, const sockaddr* a, socklen_t size) noexcept;
int listen(int fd) noexcept;
int set_option(int fd, int level, int name, int value) noexcept;
int set_linger(int fd, int seconds) noexcept;
int shutdown(int fd, int how) noexcept;
int duplicate(int fd) noexcept;
void close(int fd) noexcept;
void unlink(const char* path) noexcept;

}  // namespace weft::detail::sys
