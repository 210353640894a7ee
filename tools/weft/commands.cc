// SPDX-License-Identifier: Apache-2.0
// dump, stats, trace, list.
//
// A trace is written beside its file and takes that name when it is complete, so there is never
// half a file; a signal that ends the tool removes what there is.
#include "commands.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "http.h"

namespace weft::tool {
namespace {

[[noreturn]] void cannot_write(const std::string& path, int error) {
  throw failure{status::cannot_write, "cannot write " + path + ": " + std::strerror(error)};
}

void write_all(int fd, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) cannot_write(path, errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

// What a signal must remove. Written before the handler is there and after it is gone.
char unfinished[4096];

void remove_unfinished(int signal) {
  ::unlink(unfinished);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

// A file that is there when it is complete, and not before.
class output_file {
 public:
  explicit output_file(std::string path) : path_(std::move(path)) {
    if (path_ == "-") {
      fd_ = 1;
      return;
    }
    struct stat st {};
    if (::stat(path_.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) {  // /dev/null, a pipe
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    } else {
      temporary_ = path_ + '.' + std::to_string(::getpid()) + ".part";
      if (temporary_.size() >= sizeof unfinished) cannot_write(path_, ENAMETOOLONG);
      create_temporary();
    }
    if (fd_ < 0) {
      temporary_.clear();
      cannot_write(path_, errno);
    }
  }
  ~output_file() {
    if (fd_ > 2) ::close(fd_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;

  void write(std::string_view text) {
    write_all(fd_, path_, text);
    size_ += text.size();
  }
  void finish() {
    if (fd_ > 2 && ::close(std::exchange(fd_, -1)) != 0) cannot_write(path_, errno);
    if (temporary_.empty()) return;
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) cannot_write(path_, errno);
    temporary_.clear();
    unfinished[0] = '\0';
  }
  std::size_t size() const { return size_; }

 private:
  // One step for the signals that end us: before it there is no file, after it they remove it.
  void create_temporary() {
    constexpr int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    sigset_t set, before;
    sigemptyset(&set);
    for (const int s : ending) sigaddset(&set, s);
    ::sigprocmask(SIG_BLOCK, &set, &before);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const int err = errno;
    if (fd_ >= 0) {
      std::memcpy(unfinished, temporary_.c_str(), temporary_.size() + 1);
      for (const int s : ending) ::signal(s, remove_unfinished);
    }
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    errno = err;
  }

  std::string path_, temporary_;
  int fd_ = -1;
  std::size_t size_ = 0;
};

std::string digits(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

}  // namespace

void say(std::string_view text) { write_all(1, "standard output", text); }

void dump(const options& o) {
  connection c = target(o.pid, o.timeout).connect();
  get(c, "/goroutines", say);
}

sample take_sample(const target& t) {
  sample s;
  connection c = t.connect();
  s.values = figures::parse(get(c, "/metrics"));
  s.process = facts_of(t.pid());
  s.at = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return s;
}

void stats(const options& o) {
  const target t(o.pid, o.timeout);
  if (!o.prometheus) {
    say(stats_table(take_sample(t)));
    return;
  }
  connection c = t.connect();
  get(c, "/metrics", say);
}

void trace(const options& o) {
  const target t(o.pid, o.timeout);
  connection c = t.connect();
  output_file out(o.output);  // before the recording: better to know at once
  const answer_head h = get(
      c, "/trace?seconds=" + digits(o.seconds), [&](std::string_view part) { out.write(part); },
      o.seconds);
  out.finish();
  if (o.output == "-") return;
  std::string text = o.output + ": " + with_commas(static_cast<double>(out.size())) + " bytes, ";
  text += h.trace_source == "recorder"
              ? "what the program's flight recorder held; --seconds had no say"
              : digits(o.seconds) + " s";
  say(text + "; open it in ui.perfetto.dev\n");
}

void list() {
  std::string text;
  for (const listed& l : list_attached()) {
    try {
      text += std::to_string(l.pid) + '\t' + facts_of(l.pid).name + '\t' + l.path + '\n';
    } catch (const failure&) {  // ended since
    }
  }
  if (text.empty()) {
    throw failure{status::not_attached,
                  "no process of yours can be looked at\nStart one with WEFT_DEBUG=attach=1"};
  }
  say(text);
}

}  // namespace weft::tool
