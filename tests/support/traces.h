// SPDX-License-Identifier: Apache-2.0
// Traces in tests: a file that goes away, and what tools/check_trace.py says of it.
#pragma once

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "support/process.h"

namespace weft::test {

class trace_file {
 public:
  trace_file() {
    const char* dir = std::getenv("TMPDIR");
    path_ = std::string(dir != nullptr ? dir : "/tmp") + "/weft-test-XXXXXX";
    const int fd = ::mkstemp(path_.data());
    if (fd < 0) std::abort();
    ::close(fd);
  }
  ~trace_file() { ::unlink(path_.c_str()); }
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;

  const std::string& path() const { return path_; }
  long size() const {
    struct stat st {};
    return ::stat(path_.c_str(), &st) == 0 ? static_cast<long>(st.st_size) : -1;
  }

  // Every event, one a line; fails the test if the trace is not possible.
  std::string events() const { return checked("--events"); }
  // How often each thing happened.
  std::string summary() const { return checked("--summary"); }

 private:
  std::string checked(const char* option) const {
    const outcome o =
        run_process({"python3", WEFT_CHECK_TRACE, option, path_}, std::chrono::seconds(60));
    EXPECT_EQ(o.status, 0) << (o.out.size() < 20'000 ? o.out : o.out.substr(o.out.size() - 20'000))
                           << o.err;
    return o.out;
  }
  std::string path_;
};

inline bool has_line(const std::string& text, std::initializer_list<const char*> parts) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    bool all = true;
    for (const char* p : parts) all = all && line.find(p) != std::string::npos;
    if (all) return true;
  }
  return false;
}

}  // namespace weft::test
