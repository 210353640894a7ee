// SPDX-License-Identifier: Apache-2.0
// <weft/asio.hpp>: conn under Asio, Beast and OpenSSL, and goroutines that wait for Asio. One file:
// these headers take a while to compile.
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>
#include <memory>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "support/net.h"
#include "support/runtime.h"
#include "weft/asio.hpp"
#include "weft/weft.hpp"

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using namespace weft;
using namespace weft::test;
using boost::system::error_code;
using boost::system::system_error;

static_assert(beast::is_sync_stream<net::conn>::value);
static_assert(std::is_same_v<beast::lowest_layer_type<asio::ssl::stream<net::conn>>, net::conn>);

// The code of the system_error that f throws.
template <class F>
error_code code_of(F f) {
  try {
    f();
  } catch (const system_error& e) {
    return e.code();
  }
  return {};
}

// -- conn as a stream

TEST(Asio, ScattersAndGathers) {
  run_clean([] {
    const connected c = connect_pair();
    std::string a = "one ", b, d = "three";
    const std::array<asio::const_buffer, 3> out = {asio::buffer(a), asio::buffer(b),
                                                   asio::buffer(d)};
    EXPECT_EQ(c.client.write_some(out), 9U);  // one system call
    std::string x(2, '\0'), y(7, '\0');
    const std::vector<asio::mutable_buffer> to = {asio::buffer(x), {}, asio::buffer(y)};
    error_code ec;
    EXPECT_EQ(c.server.read_some(to, ec), 9U);
    EXPECT_EQ(x + y, "one three");

    // More buffers than a system call is given.
    std::string all(5000, '\0');
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>('a' + i % 26);
    std::vector<asio::const_buffer> bytes;
    for (const char& ch : all) bytes.emplace_back(&ch, 1);
    EXPECT_EQ(asio::write(c.client, bytes), all.size());
    std::string got(all.size(), '\0');
    EXPECT_EQ(asio::read(c.server, asio::buffer(got)), all.size());
    EXPECT_EQ(got, all);
  });
}

TEST(Asio, ErrorsAreAsios) {
  run_clean([] {
    connected c = connect_pair();
    char b[4];
    error_code ec = asio::error::fault;
    EXPECT_EQ(c.server.read_some(asio::mutable_buffer(), ec), 0U);  // nothing asked, nothing wrong
    EXPECT_FALSE(ec);
    EXPECT_EQ(c.server.write_some(asio::const_buffer(), ec), 0U);
    EXPECT_FALSE(ec);

    c.server.set_read_deadline(clock::now());
    c.server.read_some(asio::buffer(b), ec);
    EXPECT_EQ(ec, asio::error::timed_out);
    EXPECT_EQ(ec, boost::system::errc::timed_out);
    c.server.set_read_deadline(clock::time_point::max());

    c.client.write_all("xy");
    c.client.close_write();
    EXPECT_EQ(asio::read(c.server, asio::buffer(b), ec), 2U);
    EXPECT_EQ(ec, asio::error::eof);
    EXPECT_EQ(code_of([&] { c.server.read_some(asio::buffer(b)); }), asio::error::eof);

    c = connect_pair();
    c.client.set_linger(0);
    c.client.close();  // resets
    c.server.read_some(asio::buffer(b), ec);
    EXPECT_EQ(ec, asio::error::connection_reset);
    EXPECT_EQ(code_of([&] { asio::write(c.server, asio::buffer("abc", 3)); }),
              asio::error::broken_pipe);
    c.server.close();
    EXPECT_EQ(code_of([&] { c.server.read_some(asio::buffer(b)); }), asio::error::bad_descriptor);
    EXPECT_EQ(code_of([&] { c.server.write_some(asio::buffer(b)); }), asio::error::bad_descriptor);
  });
}

// -- Beast

using request = http::request<http::string_body>;
using response = http::response<http::string_body>;

// Answers with method, target and body until the client wants no more.
template <class Stream>
void serve_http(Stream& s) {
  beast::flat_buffer buffer;
  for (bool more = true; more;) {
    request q;
    http::read(s, buffer, q);
    response r(http::status::ok, q.version());
    r.set("X-Target", q.target());
    r.body() = std::string(q.method_string()) + " " + q.body();
    r.keep_alive(more = q.keep_alive());
    r.prepare_payload();
    http::write(s, r);
  }
}

template <class Stream>
void ask_http(Stream& s) {
  beast::flat_buffer buffer;
  const std::string large(300'000, 'z');
  struct {
    http::verb verb;
    std::string target, body;
    bool keep;
  } const cases[] = {{http::verb::get, "/a", "", true},
                     {http::verb::post, "/b?c=d", large, true},
                     {http::verb::put, "/last", "end", false}};
  for (const auto& k : cases) {
    request q(k.verb, k.target, 11);
    q.body() = k.body;
    q.keep_alive(k.keep);
    q.prepare_payload();
    http::write(s, q);
    response r;
    http::read(s, buffer, r);
    EXPECT_EQ(r.result(), http::status::ok);
    EXPECT_EQ(r["X-Target"], k.target);
    EXPECT_EQ(r.body(), std::string(http::to_string(k.verb)) + " " + k.body);
  }
}

TEST(Asio, HttpOverBeast) {
  run_clean([] {
    connected c = connect_pair();
    wait_group server;
    server.go([s = std::move(c.server)]() mutable { serve_http(s); });
    ask_http(c.client);
    server.wait();
    beast::flat_buffer buffer;
    request none;
    error_code ec;
    http::read(c.client, buffer, none, ec);
    EXPECT_EQ(ec, http::error::end_of_stream);
  });
}

TEST(Asio, WebSocketOverBeast) {
  run_clean([] {
    connected c = connect_pair();
    wait_group server;
    server.go([s = std::move(c.server)]() mutable {
      websocket::stream<net::conn> ws(std::move(s));
      ws.accept();
      error_code ec;
      for (;;) {
        beast::flat_buffer b;
        ws.read(b, ec);
        if (ec) break;
        ws.text(ws.got_text());
        ws.write(b.data());
      }
      EXPECT_EQ(ec, websocket::error::closed);
      EXPECT_EQ(ws.reason().code, websocket::close_code::normal);
    });
    websocket::stream<net::conn> ws(std::move(c.client));
    ws.handshake("weft.test", "/echo");
    for (const std::size_t size : {0U, 1U, 125U, 126U, 70'000U}) {
      const std::string sent(size, 'w');
      ws.binary(size % 2 == 0);
      ws.write(asio::buffer(sent));
      beast::flat_buffer b;
      ws.read(b);
      EXPECT_EQ(beast::buffers_to_string(b.data()), sent);
      EXPECT_EQ(ws.got_binary(), size % 2 == 0);
    }
    ws.close(websocket::close_code::normal);
    server.wait();
  });
}

// -- OpenSSL

struct identity {
  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key{EVP_EC_gen("P-256"), EVP_PKEY_free};
  std::unique_ptr<X509, void (*)(X509*)> certificate{X509_new(), X509_free};
  identity() {
    X509* x = certificate.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key.get());
    const auto* name = reinterpret_cast<const unsigned char*>("weft.test");
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, name, -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));  // self-signed
    EXPECT_NE(X509_sign(x, key.get(), EVP_sha256()), 0);
  }
};

TEST(Asio, TlsOverConn) {
  const identity id;
  asio::ssl::context at_server(asio::ssl::context::tls_server);
  SSL_CTX_use_certificate(at_server.native_handle(), id.certificate.get());
  SSL_CTX_use_PrivateKey(at_server.native_handle(), id.key.get());
  asio::ssl::context trusting(asio::ssl::context::tls_client);
  trusting.set_verify_mode(asio::ssl::verify_peer);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(trusting.native_handle()), id.certificate.get());
  asio::ssl::context strict(asio::ssl::context::tls_client);
  strict.set_verify_mode(asio::ssl::verify_peer);

  run_clean([&] {
    wait_group servers;
    for (int i = 0; i < 8; ++i) {
      connected c = connect_pair();
      servers.go([&, s = std::move(c.server)]() mutable {
        asio::ssl::stream<net::conn> tls(std::move(s), at_server);
        tls.handshake(asio::ssl::stream_base::server);
        serve_http(tls);
        error_code ec;
        tls.shutdown(ec);
      });
      servers.go([&, s = std::move(c.client)]() mutable {
        asio::ssl::stream<net::conn> tls(std::move(s), trusting);
        tls.handshake(asio::ssl::stream_base::client);
        ask_http(tls);
        tls.shutdown();
      });
    }
    servers.wait();

    // Who does not know the certificate refuses it.
    connected c = connect_pair();
    servers.go([&, s = std::move(c.server)]() mutable {
      asio::ssl::stream<net::conn> tls(std::move(s), at_server);
      EXPECT_TRUE(code_of([&] { tls.handshake(asio::ssl::stream_base::server); }));
    });
    {
      asio::ssl::stream<net::conn> tls(std::move(c.client), strict);
      EXPECT_EQ(code_of([&] { tls.handshake(asio::ssl::stream_base::client); }).category(),
                asio::error::get_ssl_category());
    }
    servers.wait();
  });
}

// -- use_goroutine

// An io_context on a thread of its own.
struct io_thread {
  asio::io_context io;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work{io.get_executor()};
  std::thread thread{[this] { io.run(); }};
  ~io_thread() {
    work.reset();
    thread.join();
  }
};

TEST(Asio, WaitsForATimer) {
  io_thread t;
  run_clean([&] {
    wait_group all;
    for (int i = 0; i < 100; ++i) {
      all.go([&t, i] {
        const auto d = std::chrono::milliseconds(i % 10);
        const auto start = steady::now();
        asio::steady_timer timer(t.io, d);
        timer.async_wait(use_goroutine);
        EXPECT_GE(steady::now() - start, d);
      });
    }
    all.wait();
  });
  asio::steady_timer timer(t.io, 1ms);
  timer.async_wait(use_goroutine);  // a plain thread waits as well
}

TEST(Asio, ThrowsWhatTheOperationFailsWith) {
  io_thread t;
  run_clean([&] {
    asio::ip::tcp::acceptor a(t.io, {asio::ip::address_v4::loopback(), 0});
    const asio::ip::tcp::endpoint nobody = a.local_endpoint();
    a.close();
    asio::ip::tcp::socket s(t.io);
    EXPECT_EQ(code_of([&] { s.async_connect(nobody, use_goroutine); }),
              asio::error::connection_refused);
  });
}

TEST(Asio, ReadsFromAsiosSockets) {
  io_thread t;
  run_clean([&] {
    asio::ip::tcp::acceptor a(t.io, {asio::ip::address_v4::loopback(), 0});
    wait_group server;
    server.go([&] {
      asio::ip::tcp::socket s = a.async_accept(use_goroutine);
      std::string line;
      const std::size_t n =
          asio::async_read_until(s, asio::dynamic_buffer(line), '\n', use_goroutine);
      asio::async_write(s, asio::buffer(line, n), use_goroutine);
    });
    // weft's socket at the other end.
    const net::conn c = net::dial("tcp", "127.0.0.1:" + std::to_string(a.local_endpoint().port()));
    c.write_all("hello\nrest");
    std::string got(6, '\0');
    c.read_full(std::span(got));
    EXPECT_EQ(got, "hello\n");
    server.wait();
  });
}

template <class... A, class Token, class... V>
auto complete(asio::io_context& io, Token&& token, V... v) {
  return asio::async_initiate<Token, void(A...)>(
      [&io](auto handler, auto... values) {
        asio::post(
            io, [h = std::move(handler), values = std::make_tuple(std::move(values)...)]() mutable {
              std::apply(h, std::move(values));
            });
      },
      token, std::move(v)...);
}

TEST(Asio, EveryKindOfCompletion) {
  io_thread t;
  run_clean([&] {
    complete<>(t.io, use_goroutine);
    EXPECT_EQ(complete<int>(t.io, use_goroutine, 7), 7);
    const std::tuple<int, std::string> both =
        complete<int, std::string>(t.io, use_goroutine, 1, std::string("two"));
    EXPECT_EQ(both, std::make_tuple(1, std::string("two")));
    const std::exception_ptr none;
    EXPECT_EQ((complete<std::exception_ptr, int>(t.io, use_goroutine, none, 3)), 3);
    EXPECT_THROW((complete<std::exception_ptr, int>(
                     t.io, use_goroutine, std::make_exception_ptr(std::out_of_range("x")), 3)),
                 std::out_of_range);
    EXPECT_THROW(
        (complete<std::error_code>(t.io, use_goroutine, make_error_code(std::errc::broken_pipe))),
        std::system_error);
    EXPECT_EQ(*complete<std::unique_ptr<int>>(t.io, use_goroutine, std::make_unique<int>(5)), 5);
  });
}

TEST(Asio, ADroppedOperationIsToldOf) {
  run_clean([] {
    auto io = std::make_unique<asio::io_context>();  // nobody runs it
    task<void> waiting = async([&io = *io] { asio::post(io, use_goroutine); });
    EXPECT_TRUE(eventually([&] { return debug::runtime_stats().waiting == 1; }));
    io.reset();
    EXPECT_THROW(waiting.get(), std::logic_error);
  });
}

}  // namespace
