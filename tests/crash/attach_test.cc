// SPDX-License-Identifier: Apache-2.0
// debug::attach and the tool `weft`: a program is started and looked at from outside.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "debug/attach_path.h"
#include "support/leaking.h"
#include "support/process.h"
#include "support/subject.h"
#include "support/traces.h"

namespace weft::test {
namespace {

const std::string program = std::string(WEFT_CRASH_DIR) + "/crash_attach";

class Attach : public testing::Test {
 protected:
  subject start(const std::string& how, const std::string& debug = "attach=1",
                const std::function<void()>& in_child = {}) {
    return {dir_.path(), debug, {program, how}, in_child};
  }
  // The tool, as a user would call it.
  outcome weft(std::vector<std::string> words) {
    words.insert(words.begin(), WEFT_TOOL);
    words = emulated(words);
    words.insert(words.begin(), {"env", "XDG_RUNTIME_DIR=" + dir_.path()});
    return run_process(words, std::chrono::seconds(60));
  }
  outcome weft(const std::string& command, pid_t pid, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {command, std::to_string(pid)});
    return weft(more);
  }
  std::string sockets() const { return dir_.list("weft"); }
  std::string file(const std::string& name) const { return dir_.path() + '/' + name; }

  scratch_dir dir_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
void expect_failure(const outcome& o, int status, const std::string& why) {
  EXPECT_EQ(o.status, status) << o;
  EXPECT_TRUE(has(o.err, why)) << o;
}

TEST_F(Attach, DumpShowsWhereAGoroutineWaits) {
  const subject s = start("park");
  ASSERT_EQ(s.first_line(), "ready");
  const outcome o = weft("dump", s.pid());
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_TRUE(has(o.out, "\"one who waits\" [chan receive]:\n(anonymous namespace)::waits_here()"))
      << o;
  EXPECT_TRUE(has(o.out, "goroutine 1 [syscall")) << o;
}

TEST_F(Attach, StatsHaveFigures) {
  const subject s = start("park");
  const outcome o = weft("stats", s.pid());
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_TRUE(has(o.out, "0 running, 0 runnable, 1 waiting, 1 in syscalls, 0 leaked")) << o;
  EXPECT_TRUE(has(o.out, "(crash_attach)")) << o;
  const outcome raw = weft("stats", s.pid(), {"--prometheus"});
  EXPECT_TRUE(has(raw.out, "\ngo_goroutines 2\n")) << raw;
  EXPECT_TRUE(has(raw.out, "\nweft_sched_syscalls_total 1\n")) << raw;
  EXPECT_TRUE(has(raw.out, "\nweft_p_queued_goroutines{p=\"1\"} 0\n")) << raw;
}

TEST_F(Attach, TraceIsWhatHappened) {
  const subject s = start("busy");
  trace_file f;
  const outcome o = weft("trace", s.pid(), {"-o", f.path(), "--seconds", "0.3"});
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_TRUE(has(f.summary(), "G begins")) << f.summary();
  const outcome streamed = weft("trace", s.pid(), {"-o", "-", "--seconds=0.05"});
  EXPECT_EQ(streamed.status, 0) << streamed.err;
  EXPECT_TRUE(has(streamed.out, "Processors"));
}

TEST_F(Attach, TopPrintsAPicture) {
  const subject s = start("busy");
  const outcome o = weft("top", s.pid(), {"--once", "--interval", "0.2"});
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_TRUE(has(o.out, "goroutines               5  ")) << o;
  EXPECT_TRUE(has(o.out, "preemptions")) << o;
  EXPECT_TRUE(has(o.out, "   1  running")) << o;
  // Without a terminal one after another, until it is told to stop.
  subject many(dir_.path(), "", {WEFT_TOOL, "top", std::to_string(s.pid()), "--interval", "0.1"});
  const std::string text = many.read_until("\n\nweft top: process ");
  EXPECT_TRUE(has(text, "switches/s\n")) << text;
  EXPECT_FALSE(has(text, "\033")) << text;
  EXPECT_EQ(many.end(SIGINT).status, 0);
}

bool operator==(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag && std::equal(std::begin(a.c_cc), std::end(a.c_cc), b.c_cc);
}

class terminal {
 public:
  terminal(unsigned short rows, unsigned short columns) {
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) std::abort();
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY | O_CLOEXEC);
    const winsize size{rows, columns, 0, 0};
    ::ioctl(slave_, TIOCSWINSZ, &size);
  }
  ~terminal() {
    ::close(master_);
    ::close(slave_);
  }
  terminal(const terminal&) = delete;
  terminal& operator=(const terminal&) = delete;

  termios settings() const {
    termios t{};
    ::tcgetattr(slave_, &t);
    return t;
  }
  void become() const {  // the calling process's
    ::setsid();
    ::ioctl(slave_, TIOCSCTTY, 0);
    ::dup2(slave_, 0);
    ::dup2(slave_, 1);
  }
  void type(std::string_view keys) const {
    EXPECT_EQ(::write(master_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  std::string read_until(const std::string& mark) const {
    std::string all;
    for (char c = 0; !has(all, mark) && ::read(master_, &c, 1) == 1;) all += c;
    return all;
  }

 private:
  int master_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave_ = -1;
};

// The screen, and how it reads keys, are as they were: after q, and after ^C.
TEST_F(Attach, TopGivesTheTerminalBack) {
  const subject s = start("busy");
  for (const char* key : {"q", "\x03"}) {
    const terminal t(9, 40);
    const termios before = t.settings();
    subject top(
        dir_.path(), "", {WEFT_TOOL, "top", std::to_string(s.pid()), "--interval", "0.1"},
        [&] { t.become(); }, false);
    std::string text = t.read_until("\033[J");
    EXPECT_TRUE(text.starts_with("\033[?1049h\033[?25l\033[Hweft top: process ")) << text;
    EXPECT_FALSE(has(text, "switches")) << "more lines than the terminal has";
    EXPECT_FALSE(t.settings() == before);
    t.type(key);
    text = t.read_until("\033[?1049l");
    EXPECT_TRUE(text.ends_with("\033[?25h\033[?1049l")) << text;
    EXPECT_EQ(top.end().status, 0);
    EXPECT_TRUE(t.settings() == before);
  }
}

TEST_F(Attach, OffUnlessAskedFor) {
  const subject off = start("park", "");
  expect_failure(weft("stats", off.pid()), 4, "WEFT_DEBUG=attach=1");
  EXPECT_TRUE(has(weft("stats", off.pid()).err, "attach is off")) << weft("stats", off.pid());
  EXPECT_EQ(dir_.list(""), "");
  expect_failure(weft("dump", ::getppid()), 4, "is not a program that uses weft");
  expect_failure(weft({"list"}), 4, "WEFT_DEBUG=attach=1");

  const subject asks = start("ask", "");
  EXPECT_TRUE(has(asks.first_line(), file("weft/" + std::to_string(asks.pid()) + '.')))
      << asks.first_line();
  EXPECT_EQ(weft("stats", asks.pid()).status, 0);
  const outcome all = weft({"list"});
  EXPECT_TRUE(has(all.out, std::to_string(asks.pid()) + "\tcrash_attach\t")) << all;
}

TEST_F(Attach, NoSuchProcess) {
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  expect_failure(weft("dump", gone), 3, "there is no process " + std::to_string(gone));
  expect_failure(weft({"dump", "me"}), 2, "'me' is not a PID");
}

TEST_F(Attach, AnswersWhileEveryPIsBusy) {
  const subject s = start("busy");
  const outcome o = weft("dump", s.pid());
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_TRUE(has(o.out, "::busy(")) << o;
  EXPECT_EQ(weft("stats", s.pid()).status, 0);
}

TEST_F(Attach, AnswersWhenNobodyCanRun) {
  const subject s = start("hang");
  EXPECT_TRUE(has(weft("dump", s.pid()).out, "waits_here()"));
}

TEST_F(Attach, ADeadlockIsReportedAllTheSame) {
  subject s = start("deadlock");
  const outcome o = s.end();
  EXPECT_EQ(o.status, 2) << o;
  EXPECT_TRUE(has(o.err, "all goroutines are asleep - deadlock!")) << o;
  EXPECT_EQ(sockets(), "");  // it cleans up even so
}

TEST_F(Attach, NoFalseDeadlockWhileItIsLookedAt) {
  subject s = start("resize");
  int looks = 0;
  for (outcome o; (o = weft("dump", s.pid())).status == 0;) ++looks;
  const outcome o = s.end();
  EXPECT_EQ(o.status, 0) << o;
  RecordProperty("looks", looks);
}

TEST_F(Attach, LeaksAreFoundAllTheSame) {
  if (cannot_find_leaks) GTEST_SKIP();
  subject s(dir_.path(), "attach=1,leakcheck=1",
            {std::string(WEFT_CRASH_DIR) + "/crash_leakcheck", "leak"});
  const outcome o = s.end();
  EXPECT_TRUE(has(o.err, "goroutineleak profile: total ")) << o;
}

// What another user hears at a socket; or the error that keeps him from it.
std::string knock_as_nobody(const std::string& path) {
  process_detail::pipe_pair said;
  const pid_t child = ::fork();
  if (child == 0) {
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    path.copy(a.sun_path, sizeof a.sun_path - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    char text[1000] = {};
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0) {
      std::strncpy(text, std::strerror(errno), sizeof text - 1);
    } else {
      const std::string_view request = "GET /goroutines HTTP/1.1\r\n\r\n";
      (void)!::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
      (void)!::recv(fd, text, sizeof text - 1, MSG_WAITALL);
    }
    (void)!::write(said.fd[1], text, std::strlen(text));
    ::_exit(0);
  }
  ::close(said.fd[1]);
  std::string all;
  for (char c = 0; ::read(said.fd[0], &c, 1) == 1;) all += c;
  ::close(said.fd[0]);
  ::waitpid(child, nullptr, 0);
  return all;
}

TEST_F(Attach, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  const subject s = start("park");
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0711), 0);
  const std::vector<std::string> nobody = {"setpriv", "--reuid=65534", "--regid=65534",
                                           "--clear-groups"};
  run_process({"cp", WEFT_TOOL, file("tool")}, std::chrono::seconds(60));  // where all may run it
  std::vector<std::string> words = nobody;
  for (const std::string& w : emulated({file("tool"), "stats", std::to_string(s.pid())}))
    words.push_back(w);
  expect_failure(run_process(words, std::chrono::seconds(60)), 5,
                 "only that user and root may look at it");

  // Whoever gets past the doors is still not let in.
  const std::string socket =
      file("weft/" + attach_path::name{s.pid(), attach_path::own_name().space}.text());
  EXPECT_EQ(knock_as_nobody(socket), std::strerror(EACCES));
  ASSERT_EQ(::chmod(file("weft").c_str(), 0755), 0);
  ASSERT_EQ(::chmod(socket.c_str(), 0666), 0);
  const std::string open = knock_as_nobody(socket);
  EXPECT_TRUE(open.starts_with("HTTP/1.1 403 ")) << open;
  EXPECT_FALSE(has(open, "goroutine 1")) << open;
  expect_failure(weft("stats", s.pid()), 4, "is open to other users");  // nor do we trust it
}

TEST_F(Attach, ASymbolicLinkIsRefused) {
  ASSERT_EQ(::mkdir(file("elsewhere").c_str(), 0700), 0);
  ASSERT_EQ(::symlink(file("elsewhere").c_str(), file("weft").c_str()), 0);
  subject s = start("park");
  EXPECT_EQ(s.first_line(), "ready");  // the program runs on without
  EXPECT_EQ(weft("stats", s.pid()).status, 4);
  EXPECT_EQ(dir_.list("elsewhere"), "");
  const outcome o = s.end();
  EXPECT_EQ(o.status, 0) << o;
  EXPECT_TRUE(has(o.err, "weft: debug::attach: " + file("weft") + " is a symbolic link")) << o;
}

TEST_F(Attach, LeftOversAreReplaced) {
  const std::string space = std::to_string(attach_path::own_name().space);
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  const std::string old = std::to_string(gone) + '.' + space;
  const std::string strange = "1.123456";  // of another namespace: not ours to judge
  ASSERT_EQ(::mkdir(file("weft").c_str(), 0700), 0);
  for (const std::string& name : {old, strange})
    ::close(::open(file("weft/" + name).c_str(), O_CREAT | O_WRONLY, 0600));
  const auto leave_one = [&] {  // as a process of this PID that was killed
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    file("weft/" + std::to_string(::getpid()) + '.' + space)
        .copy(a.sun_path, sizeof a.sun_path - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0) ::_exit(3);
  };
  subject s = start("park", "attach=1", leave_one);
  EXPECT_EQ(weft("stats", s.pid()).status, 0);
  const std::string there = sockets();
  EXPECT_FALSE(has(there, old)) << there;
  EXPECT_TRUE(has(there, strange)) << there;
  EXPECT_EQ(s.end().status, 0);
  EXPECT_EQ(sockets(), strange + '\n');  // its own is gone too
}

TEST_F(Attach, TheChildOfAForkIsNotItsParent) {
  subject s = start("fork");
  const pid_t child = static_cast<pid_t>(std::atoi(s.first_line().c_str()));
  ASSERT_GT(child, 0);
  EXPECT_EQ(weft("stats", s.pid()).status, 0);
  expect_failure(weft("stats", child), 4, "is not a program that uses weft");
  const pid_t parent = s.pid();
  ::kill(parent, SIGKILL);
  siginfo_t ended{};  // it stays a zombie: its number is nobody else's
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(parent), &ended, WEXITED | WNOWAIT), 0);
  // The child has the descriptor no more, so nobody seems to listen.
  const outcome all = weft({"list"});
  EXPECT_EQ(all.status, 4) << all;
  ::kill(child, SIGKILL);
}

TEST_F(Attach, TheProcessGoesAway) {
  subject s = start("park");
  std::thread killer([&] {  // when the tool has connected, and opened its file
    for (int i = 0; i < 1000 && !has(dir_.list(""), "some.trace"); ++i) ::usleep(10'000);
    ::kill(s.pid(), SIGKILL);
  });
  const std::string to = file("some.trace");
  expect_failure(weft("trace", s.pid(), {"-o", to, "--seconds", "50"}), 6, "has ended");
  killer.join();
  EXPECT_FALSE(has(dir_.list(""), "some.trace"));
}

TEST_F(Attach, AStoppedProcessDoesNotAnswer) {
  const subject s = start("park");
  ::kill(s.pid(), SIGSTOP);
  expect_failure(weft("stats", s.pid(), {"--timeout", "0.5"}), 7, "it is stopped");
  ::kill(s.pid(), SIGCONT);
}

TEST_F(Attach, WhatCannotBeWritten) {
  const subject s = start("park");
  expect_failure(weft("trace", s.pid(), {"-o", file("no/such/file"), "--seconds", "50"}), 8,
                 "cannot write " + file("no/such/file"));
  expect_failure(weft("trace", s.pid(), {"-o", "/dev/full", "--seconds", "0.05"}), 8,
                 "No space left on device");
  expect_failure(weft("trace", s.pid(), {"-o", file(""), "--seconds", "50"}), 8, "cannot write");
}

TEST_F(Attach, HalfAFileIsNone) {
  const subject s = start("park");
  subject tool(dir_.path(), "",
               {WEFT_TOOL, "trace", std::to_string(s.pid()), "-o", file("cut"), "--seconds", "50"},
               {}, false);
  for (int i = 0; i < 1000 && !has(dir_.list(""), "cut."); ++i) ::usleep(10'000);
  EXPECT_EQ(tool.end(SIGINT).signal, SIGINT);
  EXPECT_EQ(dir_.list(""), "weft\n");
}

// The tool's own environment need not be the program's.
TEST_F(Attach, FoundByItsPidAlone) {
  const subject s = start("park");
  std::vector<std::string> words = emulated({WEFT_TOOL, "stats", std::to_string(s.pid())});
  words.insert(words.begin(), {"env", "-u", "XDG_RUNTIME_DIR"});
  const outcome o = run_process(words, std::chrono::seconds(60));
  EXPECT_EQ(o.status, 0) << o;
}

}  // namespace
}  // namespace weft::test
