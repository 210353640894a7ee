// SPDX-License-Identifier: Apache-2.0
// weft top: a picture each interval, of what has happened since the last.
//
// On a terminal it has the alternate screen and reads keys without waiting for a line; both are put
// back however it ends, so signals that end it are read from a descriptor, beside the keys. Without
// a terminal pictures follow one another, with an empty line in between.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "commands.h"
#include "failure.h"

namespace weft::tool {
namespace {

using steady = std::chrono::steady_clock;

// SIGINT and its like as a descriptor, for as long as this lives.
class signals {
 public:
  signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, s);
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    fd_ = descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~signals() {
    signalfd_siginfo one;
    while (::read(fd_.get(), &one, sizeof one) > 0) {  // it has had its effect
    }
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  signals(const signals&) = delete;
  signals& operator=(const signals&) = delete;
  int fd() const { return fd_.get(); }

 private:
  sigset_t before_{};
  descriptor fd_;
};

class screen {
 public:
  screen() {
    if (::isatty(1) == 0) return;
    on_ = true;
    if (::isatty(0) != 0 && ::tcgetattr(0, &before_) == 0) {
      termios now = before_;
      now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      now.c_cc[VSUSP] = _POSIX_VDISABLE;  // ^Z would leave the terminal like this
      now.c_cc[VMIN] = 1;
      now.c_cc[VTIME] = 0;
      keys_ = ::tcsetattr(0, TCSANOW, &now) == 0;
    }
    say("\033[?1049h\033[?25l");
  }
  ~screen() {
    if (keys_) ::tcsetattr(0, TCSANOW, &before_);
    if (!on_) return;
    try {
      say("\033[?25h\033[?1049l");
    } catch (const failure&) {  // the terminal is gone
    }
  }
  screen(const screen&) = delete;
  screen& operator=(const screen&) = delete;

  bool has_keys() const { return keys_; }

  void show(const sample& before, const sample& now) {
    if (!on_) {
      say((first_ ? "" : "\n") + top_frame(before, now));
      first_ = false;
      return;
    }
    winsize size{};
    ::ioctl(1, TIOCGWINSZ, &size);
    const std::size_t rows = size.ws_row > 1 ? size.ws_row - 1U : 0;
    // Each line is wiped behind its end, and what is below the last: nothing flickers.
    std::string text = "\033[H";
    for (const char c : top_frame(before, now, rows, size.ws_col))
      text += c == '\n' ? std::string("\033[K\r\n") : std::string(1, c);
    say(text + "\033[J");
  }

 private:
  bool on_ = false, keys_ = false, first_ = true;
  termios before_{};
};

// Until then, or q, or a signal; false: one of these.
bool wait_until(steady::time_point when, const signals& s, bool keys) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - steady::now()).count();
    if (left <= 0) return true;
    pollfd fds[2] = {{s.fd(), POLLIN, 0}, {keys ? 0 : -1, POLLIN, 0}};
    if (::poll(fds, 2, static_cast<int>(std::min<long>(left, 1'000'000))) <= 0) continue;
    if (fds[0].revents != 0) return false;
    char key = 0;
    if (fds[1].revents != 0 && (::read(0, &key, 1) <= 0 || key == 'q' || key == 'Q')) return false;
  }
}

}  // namespace

void top(const options& o) {
  const signals enough;
  const target t(o.pid, o.timeout, enough.fd());
  const auto interval =
      std::chrono::duration_cast<steady::duration>(std::chrono::duration<double>(o.interval));
  try {
    sample before = take_sample(t);  // what is wrong is said before the screen is taken
    std::optional<screen> page;
    if (!o.once) page.emplace();
    for (auto next = steady::now() + interval;; next = std::max(next, steady::now()) + interval) {
      if (!wait_until(next, enough, page && page->has_keys())) return;
      sample now = take_sample(t);
      if (o.once) {
        say(top_frame(before, now));
        return;
      }
      page->show(before, now);
      before = std::move(now);
    }
  } catch (const interrupted&) {
  }
}

}  // namespace weft::tool
