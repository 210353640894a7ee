// SPDX-License-Identifier: Apache-2.0
// examples/kv as a process, over its sockets: every command, requests cut at every byte, protocol
// errors, pipelines, many clients, and the end in good order.
#include <chrono>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "support/net.h"
#include "support/runtime.h"
#include "support/server_process.h"
#include "weft/weft.hpp"

namespace {

using namespace weft;
using namespace weft::test;

std::string request(const std::vector<std::string_view>& args) {
  std::string r = "*" + std::to_string(args.size()) + "\r\n";
  for (const std::string_view a : args)
    r.append("$").append(std::to_string(a.size())).append("\r\n").append(a).append("\r\n");
  return r;
}
std::string bulk(std::string_view s) {
  return "$" + std::to_string(s.size()) + "\r\n" + std::string(s) + "\r\n";
}

class client {
 public:
  explicit client(const std::string& at, std::string_view network = "tcp")
      : c(net::dial(network, at)) {
    c.set_deadline(in(60s));
  }
  // Sends `sent` and expects exactly `answer`.
  void expect(std::string_view sent, std::string_view answer) const {
    c.write_all(sent);
    std::string got(answer.size(), '\0');
    std::error_code ec;
    got.resize(c.read_full(std::span(got), ec));
    EXPECT_EQ(got, answer) << "to " << sent.substr(0, 200);
  }
  void command(const std::vector<std::string_view>& args, std::string_view answer) const {
    expect(request(args), answer);
  }
  // The integer that a command answers with.
  long integer(const std::vector<std::string_view>& args) const {
    c.write_all(request(args));
    std::string got;
    char b = 0;
    while (b != '\n' && c.read_some(std::span(&b, 1)) == 1) got += b;
    EXPECT_EQ(got[0], ':') << got;
    return std::stol(got.substr(1));
  }
  // What comes until the server closes.
  std::string rest() const {
    std::string all;
    char b[4096];
    std::error_code ec;
    while (const std::size_t n = c.read_some(std::span(b), ec)) all.append(b, n);
    EXPECT_FALSE(ec) << ec.message();
    return all;
  }
  net::conn c;
};

constexpr const char* wrong_type = "-ERR value is not an integer or out of range\r\n";

TEST(Kv, Commands) {
  server_process kv("kv", {"--port", "0"});
  const client c(kv.at());
  c.command({"PING"}, "+PONG\r\n");
  c.command({"ping", "you"}, bulk("you"));
  c.command({"ECHO", ""}, bulk(""));
  c.command({"GET", "a"}, "$-1\r\n");
  c.command({"SET", "a", "1"}, "+OK\r\n");
  c.command({"get", "a"}, bulk("1"));
  c.command({"SET", "a", "2", "NX"}, "$-1\r\n");
  c.command({"SET", "b", "2", "xx"}, "$-1\r\n");
  c.command({"SET", "a", "5", "XX"}, "+OK\r\n");
  c.command({"SET", "a", "5", "NX", "XX"}, "-ERR syntax error\r\n");
  c.command({"INCR", "a"}, ":6\r\n");
  c.command({"DECR", "new"}, ":-1\r\n");
  c.command({"INCRBY", "a", "-10"}, ":-4\r\n");
  c.command({"DECRBY", "a", "x"}, wrong_type);
  c.command({"SET", "max", "9223372036854775807"}, "+OK\r\n");
  c.command({"INCR", "max"}, "-ERR increment or decrement would overflow\r\n");
  c.command({"SET", "text", "abc"}, "+OK\r\n");
  c.command({"INCR", "text"}, wrong_type);
  c.command({"MGET", "a", "none", "text"}, "*3\r\n" + bulk("-4") + "$-1\r\n" + bulk("abc"));
  c.command({"EXISTS", "a", "a", "none"}, ":2\r\n");
  c.command({"DBSIZE"}, ":4\r\n");
  c.command({"DEL", "a", "none", "text"}, ":2\r\n");
  c.command({"GET"}, "-ERR wrong number of arguments for 'GET' command\r\n");
  c.command({"NOPE\r\n", "x"}, "-ERR unknown command 'NOPE  '\r\n");
  c.command({"COMMAND", "COUNT"}, ":20\r\n");
  c.command({"FLUSHALL"}, "+OK\r\n");
  c.command({"DBSIZE"}, ":0\r\n");
  c.c.write_all(request({"INFO"}) + request({"QUIT"}) + request({"PING"}));
  const std::string rest = c.rest();  // nothing after QUIT
  EXPECT_NE(rest.find("connected_clients:1\r\n"), std::string::npos) << rest;
  EXPECT_TRUE(rest.ends_with("\r\n+OK\r\n")) << rest;
  EXPECT_EQ(kv.stop(), 0);
}

TEST(Kv, TimesToLive) {
  server_process kv("kv", {"--port", "0"});
  const client c(kv.at());
  const auto left = [&c](long low, long high) {
    const long n = c.integer({"TTL", "k"});
    return low <= n && n <= high;
  };
  c.command({"TTL", "k"}, ":-2\r\n");
  c.command({"EXPIRE", "k", "10"}, ":0\r\n");
  c.command({"SET", "k", "v", "EX", "100"}, "+OK\r\n");
  EXPECT_TRUE(left(50, 100));
  c.command({"SET", "k", "w", "KEEPTTL"}, "+OK\r\n");
  EXPECT_TRUE(left(50, 100));
  c.command({"SET", "k", "v"}, "+OK\r\n");
  c.command({"TTL", "k"}, ":-1\r\n");
  c.command({"EXPIRE", "k", "200"}, ":1\r\n");
  EXPECT_TRUE(left(150, 200));
  c.command({"EXPIRE", "k", "-1"}, ":1\r\n");
  c.command({"EXISTS", "k"}, ":0\r\n");
  for (const char* bad : {"0", "-5", "9223372036854775807"})
    c.command({"SET", "k", "v", "EX", bad}, "-ERR invalid expire time in 'set' command\r\n");
  c.command({"SET", "k", "v", "PX", "soon"}, wrong_type);
  c.command({"SET", "k", "v", "PX"}, "-ERR syntax error\r\n");

  // It goes by itself: found gone when asked for, and swept when nobody asks.
  c.command({"SET", "asked", "v", "PX", "20"}, "+OK\r\n");
  c.command({"SET", "swept", "v", "PX", "20"}, "+OK\r\n");
  EXPECT_TRUE(eventually([&c] { return c.integer({"EXISTS", "asked"}) == 0; }));
  EXPECT_TRUE(eventually([&c] { return c.integer({"DBSIZE"}) == 0; }));
}

TEST(Kv, InlineCommands) {
  server_process kv("kv", {"--port", "0"});
  const client c(kv.at());
  c.expect("PING\r\n", "+PONG\r\n");
  c.expect("\r\n  \nset k 'it\\'s'\n", "+OK\r\n");
  c.expect("get k\r\n", bulk("it's"));
  c.expect("set k \"a b\\x00\\n\\\"\"\r\n*0\r\n*-1\r\nget  k\r\n",
           "+OK\r\n" + bulk(std::string_view("a b\0\n\"", 6)));
}

TEST(Kv, RequestsCutAtEveryByte) {
  server_process kv("kv", {"--port", "0"});
  const client c(kv.at());
  const std::string two = request({"SET", "key", "a\r\nb"}) + request({"GET", "key"}) + "PING\r\n";
  const std::string answer = "+OK\r\n" + bulk("a\r\nb") + "+PONG\r\n";
  for (std::size_t cut = 1; cut < two.size(); ++cut) {
    c.c.write_all(std::string_view(two).substr(0, cut));
    // A round trip on another connection: the server has most likely read the first part.
    client(kv.at()).command({"PING"}, "+PONG\r\n");
    c.expect(std::string_view(two).substr(cut), answer);
  }
  for (const char& b : two) c.c.write_all(std::string_view(&b, 1));
  c.expect("", answer);
}

TEST(Kv, ProtocolErrorsAreToldAndEndTheConnection) {
  server_process kv("kv", {"--port", "0"});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"*x\r\n", "invalid multibulk length"},
      {"*1048577\r\n", "invalid multibulk length"},
      {"*1\r\n+PING\r\n", "expected '$', got '+'"},
      {"*1\r\n$-1\r\n", "invalid bulk length"},
      {"*1\r\n$536870913\r\n", "invalid bulk length"},
      {"*1\r\n$99999999999999999999\r\n", "invalid bulk length"},
      {"*1\r\n$4\r\nPINGxx", "bulk string without its end"},
      {"get \"k\r\n", "unbalanced quotes in request"},
      {std::string(200'000, 'x'), "too big inline request"},
      {"*" + std::string(200'000, '1'), "too big mbulk count string"},
      {"*1\r\n$" + std::string(200'000, '1'), "too big bulk count string"},
  };
  for (const auto& [sent, error] : cases) {
    const client c(kv.at());
    c.c.write_all("PING\r\n" + sent);  // what came before is answered
    EXPECT_EQ(c.rest(), "+PONG\r\n-ERR Protocol error: " + error + "\r\n");
  }
  client(kv.at()).command({"PING"}, "+PONG\r\n");
  EXPECT_EQ(kv.stop(), 0);
}

TEST(Kv, RequestsAndRepliesHaveALimit) {
  server_process kv("kv", {"--port", "0", "--max-request", "1"});
  const std::string value(700'000, 'v');
  {
    const client c(kv.at());
    c.c.write_all("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n");
    EXPECT_EQ(c.rest(), "-ERR Protocol error: invalid bulk length\r\n");
  }
  {  // each of them would do
    const client c(kv.at());
    c.c.write_all("*1048576\r\n" + bulk(value) + "$700000\r\n");
    EXPECT_EQ(c.rest(), "-ERR Protocol error: too big request\r\n");
  }
  const client c(kv.at());
  c.command({"SET", "k", value}, "+OK\r\n");
  c.command({"SET", "small", "s"}, "+OK\r\n");
  c.expect(request({"PING"}) + request({"MGET", "k", "k"}) + request({"PING"}),
           "+PONG\r\n-ERR reply exceeds the limit\r\n+PONG\r\n");
  c.command({"MGET", "k", "small"}, "*2\r\n" + bulk(value) + bulk("s"));
  // Of the batch, not of one: two of them are more than the limit.
  c.expect(request({"GET", "k"}) + request({"GET", "k"}), bulk(value) + bulk(value));
  EXPECT_EQ(kv.stop(), 0);
}

TEST(Kv, HugeValues) {
  server_process kv("kv", {"--port", "0"});
  run_clean([&] {
    const client c(kv.at());
    std::string value(static_cast<std::size_t>(full_or(64, 8)) << 20, '\0');
    for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 31 >> 3);
    c.command({"SET", "huge", value}, "+OK\r\n");
    const std::string answer = bulk(value);
    c.c.write_all(request({"GET", "huge"}) + request({"PING"}));
    std::string got(answer.size() + 7, '\0');
    c.c.read_full(std::span(got));
    EXPECT_TRUE(got == answer + "+PONG\r\n");
  });
}

TEST(Kv, APipelineOfAThousand) {
  server_process kv("kv", {"--port", "0"});
  run_clean([&] {
    const client c(kv.at());
    std::string sent, answer;
    for (int i = 1; i <= 1000; ++i) {
      sent += request({"INCR", "n"}) + request({"ECHO", std::to_string(i)});
      answer += ":" + std::to_string(i) + "\r\n" + bulk(std::to_string(i));
    }
    for (int i = 0; i < 10; ++i) {
      c.command({"DEL", "n"}, i == 0 ? ":0\r\n" : ":1\r\n");
      c.expect(sent, answer);
    }
  });
}

TEST(Kv, AHundredClients) {
  server_process kv("kv", {"--port", "0"});
  const int rounds = full_or(200, 40);
  run_clean([&] {
    wait_group all;
    for (int id = 0; id < 100; ++id) {
      all.go([&, id] {
        const client c(kv.at());
        const std::string own = "key" + std::to_string(id);
        for (int i = 0; i < rounds; ++i) {
          const std::string value = std::to_string(id * rounds + i);
          c.command({"SET", own, value}, "+OK\r\n");
          c.command({"GET", own}, bulk(value));
          EXPECT_GT(c.integer({"INCR", "shared"}), i);
        }
      });
    }
    all.wait();
    client(kv.at()).command({"GET", "shared"}, bulk(std::to_string(100 * rounds)));
  });
  EXPECT_EQ(kv.stop(SIGINT), 0);
}

TEST(Kv, StopsInGoodOrder) {
  const std::string path = "/tmp/weft_kv_" + std::to_string(::getpid());
  server_process kv("kv", {"--port=0", "--unix", path, "--grace", "60000"}, 2);
  const client idle(kv.at()), half(path, "unix");
  idle.command({"PING"}, "+PONG\r\n");
  half.expect("PING\r\n*1\r\n$4\r\nPI", "+PONG\r\n");
  const auto start = steady::now();
  EXPECT_EQ(kv.stop(), 0);  // neither an idle client nor half a request holds it up
  EXPECT_LT(steady::now() - start, 30s);
  EXPECT_EQ(idle.rest(), "");
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << "the socket's name is left behind";
}

TEST(Kv, TheCommandLine) {
  const outcome help = run_example("kv", {"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("--unix PATH"), std::string::npos) << help;
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--prot", "1"}, "kv: unknown option '--prot'; --help lists them\n"},
      {{"--port"}, "kv: --port needs a value: N\n"},
      {{"--port=70000"}, "kv: --port 70000: not a number from 0 to 65535\n"},
  };
  for (const auto& [args, text] : wrong) {
    const outcome o = run_example("kv", args);
    EXPECT_EQ(o.status, 2);
    EXPECT_EQ(o.err, text);
  }
  server_process kv("kv", {"--port", "0"});
  const std::string port = kv.at().substr(kv.at().rfind(':') + 1);
  const outcome taken = run_example("kv", {"--port", port});
  EXPECT_EQ(taken.status, 1);
  EXPECT_EQ(taken.err, "kv: listen tcp " + kv.at() + ": bind: address already in use\n");
}

}  // namespace
