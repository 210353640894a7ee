// SPDX-License-Identifier: Apache-2.0
// examples/httpd as a process, over its socket: files and what is none, methods, ranges, keep-alive
// and pipelines, requests that are wrong or cut anywhere, and the end in good order.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/net.h"
#include "support/runtime.h"
#include "support/server_process.h"
#include "weft/weft.hpp"

namespace {

using namespace weft;
using namespace weft::test;
namespace fs = std::filesystem;

// A directory with a site in it, and a secret beside it.
class site {
 public:
  site() {
    char name[] = "/tmp/weft_httpd_XXXXXX";
    base = ::mkdtemp(name);
    fs::create_directories(base / "root/sub");
    write("secret.txt", "secret");
    write("root/index.html", "<p>home</p>");
    write("root/sub/a b.txt", "spaced");
    write("root/data.bin", std::string(3'000'000, 'd'));
    fs::create_symlink("../secret.txt", base / "root/link.txt");
    fs::create_directory_symlink("..", base / "root/up");
  }
  ~site() { fs::remove_all(base); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(base / name, std::ios::binary) << text;
  }
  std::string root() const { return (base / "root").string(); }
  fs::path base;
};

struct response {
  int status = 0;
  std::string head, body;
  bool has(std::string_view line) const {
    return head.find("\r\n" + std::string(line) + "\r\n") != std::string::npos;
  }
};

class client {
 public:
  explicit client(const std::string& at) : c(net::dial("tcp", at)) { c.set_deadline(in(60s)); }
  void send(std::string_view text) const { c.write_all(text); }

  // The next response; status 0 if there is none. no_body: it answers a HEAD.
  response next(bool no_body = false) {
    response r;
    std::size_t end = 0;
    while ((end = buf.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return r;
    }
    r.head = buf.substr(0, end + 2);
    buf.erase(0, end + 4);
    r.status = std::stoi(r.head.substr(9, 3));
    const std::string length = "\r\nContent-Length: ";
    const std::size_t at = r.head.find(length);
    EXPECT_NE(at, std::string::npos) << r.head;
    const std::size_t size = no_body ? 0 : std::stoul(r.head.substr(at + length.size()));
    while (buf.size() < size && more()) {
    }
    EXPECT_GE(buf.size(), size);
    r.body = buf.substr(0, size);
    buf.erase(0, size);
    return r;
  }
  response get(const std::string& target, const std::string& headers = {}) {
    send("GET " + target + " HTTP/1.1\r\nHost: t\r\n" + headers + "\r\n");
    return next();
  }
  bool at_end() { return buf.empty() && !more(); }
  // Reads a part of what comes; false at the end.
  bool more() {
    char b[16384];
    std::error_code ec;
    const std::size_t n = c.read_some(std::span(b), ec);
    EXPECT_FALSE(ec) << ec.message();
    buf.append(b, n);
    return n != 0;
  }

 private:
  net::conn c;
  std::string buf;
};

TEST(Httpd, TheGreeting) {
  server_process httpd("httpd", {"--port", "0"});
  client c(httpd.at());
  const response r = c.get("/");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.body, "Hello from weft.\n");
  EXPECT_TRUE(r.has("Connection: keep-alive")) << r.head;
  EXPECT_EQ(c.get("/?q=1").status, 200);
  EXPECT_EQ(c.get("/other").status, 404);
  EXPECT_EQ(httpd.stop(), 0);
}

TEST(Httpd, Files) {
  const site s;
  server_process httpd("httpd", {"--port", "0", "--root", s.root()});
  run_clean([&] {
    client c(httpd.at());
    const response home = c.get("/");
    EXPECT_EQ(home.body, "<p>home</p>");
    EXPECT_TRUE(home.has("Content-Type: text/html; charset=utf-8")) << home.head;
    const response spaced = c.get("/sub/a%20b.txt?x=../..");
    EXPECT_EQ(spaced.body, "spaced");
    EXPECT_TRUE(spaced.has("Content-Type: text/plain; charset=utf-8"));
    EXPECT_TRUE(c.get("/data.bin").body == std::string(3'000'000, 'd'));
    const response moved = c.get("/sub");
    EXPECT_EQ(moved.status, 301);
    EXPECT_TRUE(moved.has("Location: /sub/")) << moved.head;
    EXPECT_EQ(c.get("/sub/").status, 404);  // no index, and no listing

    c.send("HEAD /data.bin HTTP/1.1\r\nHost: t\r\n\r\n");
    const response head = c.next(true);
    EXPECT_EQ(head.status, 200);
    EXPECT_TRUE(head.has("Content-Length: 3000000")) << head.head;
    EXPECT_EQ(c.get("/").body, "<p>home</p>");  // no body was sent
  });
}

TEST(Httpd, TargetsWithAHost) {
  const site s;
  server_process httpd("httpd", {"--port", "0", "--root", s.root()});
  client c(httpd.at());
  for (const char* target :
       {"http://t/", "http://t", "http://t:80/index.html", "HTTP://other/?q=/../x", "http://t?q=1",
        "http://[::1]:80/index.html?http://t/data.bin"})
    EXPECT_EQ(c.get(target).body, "<p>home</p>") << target;
  EXPECT_EQ(c.get("http://t/sub/a%20b.txt").body, "spaced");
  const response moved = c.get("http://t/sub");
  EXPECT_EQ(moved.status, 301);
  EXPECT_TRUE(moved.has("Location: /sub/")) << moved.head;
  for (const char* target : {"http:///index.html", "http://", "http:/t/", "ftp://t/", "http://t#x"})
    EXPECT_EQ(c.get(target).status, 400) << target;
  for (const char* target :
       {"http://t/../secret.txt", "http://../secret.txt", "http://t//secret.txt"})
    EXPECT_EQ(c.get(target).status, 404) << target;
}

TEST(Httpd, NothingOutsideTheRoot) {
  const site s;
  server_process httpd("httpd", {"--port", "0", "--root", s.root()});
  client c(httpd.at());
  for (const char* target :
       {"/../secret.txt", "/sub/../../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt",
        "/sub/..%2f..%2fsecret.txt", "/link.txt", "/up/secret.txt", "//secret.txt", "/./index.html",
        "/index.html/", "/nothing", "/\\..\\secret.txt"}) {
    const response r = c.get(target);
    EXPECT_EQ(r.status, 404) << target;
    EXPECT_EQ(r.body, "404 Not Found\n") << target;
  }
  for (const char* target : {"/%00", "/index.html%00.txt", "/%", "/%4", "/%zz", "/%-1"})
    EXPECT_EQ(c.get(target).status, 400) << target;
}

TEST(Httpd, Ranges) {
  const site s;
  s.write("root/ten", "0123456789");
  server_process httpd("httpd", {"--port", "0", "--root", s.root()});
  client c(httpd.at());
  struct {
    const char* range;
    int status;
    const char* body;
    const char* header;
  } const cases[] = {
      {"bytes=0-0", 206, "0", "Content-Range: bytes 0-0/10"},
      {"bytes=3-5", 206, "345", "Content-Range: bytes 3-5/10"},
      {"bytes=8-", 206, "89", "Content-Range: bytes 8-9/10"},
      {"bytes=-3", 206, "789", "Content-Range: bytes 7-9/10"},
      {"bytes=-99", 206, "0123456789", "Content-Range: bytes 0-9/10"},
      {"bytes=5-99999999999999999", 206, "56789", "Content-Range: bytes 5-9/10"},
      {"bytes=10-", 416, "416 Range Not Satisfiable\n", "Content-Range: bytes */10"},
      {"bytes=-0", 416, "416 Range Not Satisfiable\n", "Content-Range: bytes */10"},
      {"bytes=5-3", 200, "0123456789", "Accept-Ranges: bytes"},
      {"bytes=1-2,4-5", 200, "0123456789", "Accept-Ranges: bytes"},
      {"lines=1-2", 200, "0123456789", "Accept-Ranges: bytes"},
  };
  // Not of a version that we have never named.
  EXPECT_EQ(c.get("/ten", "Range: bytes=1-2\r\nIf-Range: \"old\"\r\n").body, "0123456789");
  for (const auto& k : cases) {
    const response r = c.get("/ten", "Range: " + std::string(k.range) + "\r\n");
    EXPECT_EQ(r.status, k.status) << k.range;
    EXPECT_EQ(r.body, k.body) << k.range;
    EXPECT_TRUE(r.has(k.header)) << k.range << "\n" << r.head;
  }
}

TEST(Httpd, MethodsAndKeepAlive) {
  server_process httpd("httpd", {"--port", "0"});
  {
    client c(httpd.at());
    c.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello");
    const response r = c.next();
    EXPECT_EQ(r.status, 405);
    EXPECT_TRUE(r.has("Allow: GET, HEAD")) << r.head;
    c.send("PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    EXPECT_EQ(c.next().status, 405);
    const response last = c.get("/", "Connection: close\r\n");
    EXPECT_TRUE(last.has("Connection: close")) << last.head;
    EXPECT_TRUE(c.at_end());
  }
  client old(httpd.at());
  old.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.next().status, 200);
  EXPECT_TRUE(old.at_end());
}

TEST(Httpd, Pipelines) {
  server_process httpd("httpd", {"--port", "0"});
  run_clean([&] {
    client c(httpd.at());
    std::string sent;
    for (int i = 0; i < 300; ++i)
      sent += "GET /" + std::string(i % 3 == 0 ? "" : "none") + " HTTP/1.1\r\nHost: t\r\n\r\n";
    wait_group writer;
    writer.go([&] { c.send(sent); });
    for (int i = 0; i < 300; ++i) EXPECT_EQ(c.next().status, i % 3 == 0 ? 200 : 404) << i;
    writer.wait();
  });
}

TEST(Httpd, RequestsCutAtEveryByte) {
  server_process httpd("httpd", {"--port", "0"});
  client c(httpd.at());
  const std::string text = "POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc";
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    c.send(std::string_view(text).substr(0, cut));
    EXPECT_EQ(client(httpd.at()).get("/").status, 200);  // meanwhile, somebody else
    c.send(std::string_view(text).substr(cut));
    EXPECT_EQ(c.next().status, 405) << cut;
  }
}

TEST(Httpd, BadRequests) {
  server_process httpd("httpd", {"--port", "0"});
  const std::string host = " HTTP/1.1\r\nHost: t\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {"nonsense\r\n\r\n", 400},
      {"GET / HTTP/9.9\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},  // no Host
      {"GET /" + host + "Host: u\r\n\r\n", 400},
      {"GET x" + host + "\r\n", 400},
      {"GET /" + host + "Broken header\r\n\r\n", 400},
      {"GET /" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"GET /" + host + "Long: " + std::string(20'000, 'x') + "\r\n\r\n", 431},
      {"POST /" + host + "Content-Length: 2000000\r\n\r\n", 413},
      {"POST /" + host + "Transfer-Encoding: chunked, identity\r\n\r\nGET /x" + host + "\r\n", 400},
      {"POST /" + host + "Transfer-Encoding: gzip\r\nContent-Length: 0\r\n\r\n", 400},
      {"POST /" + host + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(500'000, 'a'), 400},
  };
  for (const auto& [sent, status] : cases) {
    client c(httpd.at());
    EXPECT_EQ(c.get("/").status, 200);
    c.send(sent);
    EXPECT_EQ(c.next().status, status) << sent.substr(0, 100);
  }
  EXPECT_EQ(httpd.stop(), 0);
}

TEST(Httpd, StopsInGoodOrder) {
  const site s;
  server_process httpd("httpd", {"--port", "0", "--root", s.root(), "--grace", "60000"});
  client idle(httpd.at()), half(httpd.at()), busy(httpd.at());
  EXPECT_EQ(idle.get("/").status, 200);
  half.send("GET / HT");
  // More than the sockets hold: it is being sent when the stop comes, and sent to its end.
  s.write("root/large", std::string(32'000'000, 'l'));
  busy.send("GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_TRUE(busy.more());
  ::kill(httpd.pid(), SIGTERM);
  EXPECT_TRUE(idle.at_end());
  const response r = busy.next();
  EXPECT_EQ(r.body.size(), 32'000'000U);
  EXPECT_TRUE(busy.at_end());
  EXPECT_EQ(httpd.stop(), 0);  // the second signal finds it stopping, or gone
}

TEST(Httpd, TheGraceEnds) {
  const site s;
  s.write("root/large", std::string(64'000'000, 'l'));
  server_process httpd("httpd", {"--port", "0", "--root", s.root(), "--grace", "50"});
  client c(httpd.at());
  c.send("GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_TRUE(c.more());
  EXPECT_EQ(httpd.stop(), 0);  // though nobody reads the answer
}

TEST(Httpd, TheCommandLine) {
  EXPECT_NE(run_example("httpd", {"--help"}).out.find("--root DIR"), std::string::npos);
  const outcome o = run_example("httpd", {"--port=0", "--root", "/nowhere"});
  EXPECT_EQ(o.status, 1);
  EXPECT_EQ(o.err, "httpd: --root /nowhere: No such file or directory\n");
  EXPECT_EQ(run_example("httpd", {"--bind", "x"}).status, 2);
}

}  // namespace
