// SPDX-License-Identifier: Apache-2.0
// A process that may not use io_uring, as in many a container: files work all the same.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <weft/file.hpp>
#include <weft/go.hpp>
#include <weft/run.hpp>

namespace {

void forbid_uring() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog prog{static_cast<unsigned short>(std::size(code)), code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) != 0) {
    std::puts("no seccomp");
    std::exit(0);
  }
}

}  // namespace

int main() {
  forbid_uring();
  weft::run([] {
    char name[] = "weft_file_XXXXXX";
    const int fd = ::mkstemp(name);
    ::unlink(name);
    const weft::file f = weft::file::adopt(fd, name);
    weft::scope s;
    for (int i = 0; i < 50; ++i) {
      s.go([&f, i] {
        const std::string text = std::to_string(1000 + i);
        f.write_at(std::as_bytes(std::span(text)), std::int64_t{i} * 4);
        f.sync();
      });
    }
    s.wait();
    std::string all(200, '\0');
    f.read_at(std::as_writable_bytes(std::span(all)), 0);
    std::printf("%s %s\n", all.substr(0, 4).c_str(), all.substr(196).c_str());
  });
}
