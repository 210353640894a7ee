// SPDX-License-Identifier: Apache-2.0
// The network of a bubble (testing::network): sockets in memory, behind the same net_fd as the
// kernel's. One net_fd has either a descriptor or a memory_socket, and the code over it calls
// sys::receive and its kin with whichever it is: a result, or minus an errno, -EAGAIN to wait.
//
// What is sent is queued at its receiver with the virtual time of its arrival, which the seed draws
// from the options' range: in order within a stream, in any order between two of them. A receiver
// waits on a condition variable until it is notified, its deadline, or the first arrival; so there
// is neither a timer's function nor a goroutine of ours, and every wait is durable. What else the
// seed decides: how much a read and a write take, which write resets its connection, which datagram
// is lost.
//
// N1. What a member of the bubble can see depends on nothing but the seed and what members do.
// N2. All state is under the network's lock, because handles may be closed outside the bubble;
//     inside nobody gives way while he holds it, so nobody else there finds it taken. (A member may
//     join a thread that closes one.)
// N3. Nobody outside wakes one inside (that is fatal): who closes there notifies nobody, and leaves
//     those in line for a socket where they are.
//
// Runs on the caller's stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/uio.h>
#include <system_error>
#include <utility>
#include <vector>

#include "base/atomic.h"
#include "base/random.h"
#include "sched/netpoll.h"
#include "timer/heap.h"
#include "weft/net.hpp"
#include "weft/sync.hpp"
#include "weft/testing.hpp"

namespace weft::rt {
struct bubble;
}  // namespace weft::rt

namespace weft::detail {

struct network_kind;
class memory_network;

class memory_socket {
 public:
  memory_socket(std::shared_ptr<memory_network> n, int t, const net::address& at,
                const net::address& to);
  memory_socket(const memory_socket&) = delete;
  memory_socket& operator=(const memory_socket&) = delete;
  virtual ~memory_socket() = default;  // it has been closed

  // Is the caller in the bubble that it belongs to?
  bool inside() const noexcept;
  void close() noexcept;
  void set_deadline(unsigned modes, std::int64_t when);

  // Calls f(this) until it does something else than block, or the deadline comes, or it is closed.
  template <class F>
  long retry(rt::poll_mode m, std::error_code& ec, const F& f) {
    const auto erased = [](const void* arg, memory_socket* s) noexcept -> long {
      return (*static_cast<const F*>(arg))(s);
    };
    return retry(m, ec, erased, &f);
  }
  template <class F>
  int control(const F& f);

  const int type;  // SOCK_STREAM, SOCK_DGRAM
  const net::address local, remote;
  bool both_families = false;  // any address, of IPv6 and of IPv4

  // -- under the network's lock.
  virtual long receive(const iovec* v, std::size_t n) noexcept = 0;
  virtual long receive_from(void* b, std::size_t n, sockaddr* from, socklen_t* size) noexcept;
  virtual long send(const iovec* v, std::size_t n) noexcept = 0;
  virtual long send_to(const void* b, std::size_t n, const net::address& to) noexcept;
  virtual int shutdown(int how) noexcept;
  virtual int set_option(int level, int name) noexcept;
  virtual int set_linger(int seconds) noexcept;
  void wake(rt::poll_mode m) noexcept;
  void close_locked() noexcept;

 protected:
  using call = long (*)(const void* arg, memory_socket* s) noexcept;
  long retry(rt::poll_mode m, std::error_code& ec, call f, const void* arg);
  // When something happens that nobody will notify of.
  virtual std::int64_t due(rt::poll_mode m) const noexcept = 0;
  virtual void on_close() noexcept = 0;
  memory_network& net() const noexcept { return *net_; }

 private:
  const std::shared_ptr<memory_network> net_;
  bool closed_ = false;
  std::int64_t deadline_[2] = {rt::never, rt::never};
  condition_variable ready_[2];
};

class memory_network : public std::enable_shared_from_this<memory_network> {
 public:
  using options = testing::network::options;
  // The bubble that the caller is in has it from now on.
  static std::shared_ptr<memory_network> make(const options& o);
  // The bubble's; null: none, so the machine's is meant.
  static memory_network* current() noexcept;
  memory_network(rt::bubble* b, const options& o) noexcept;
  void remove() noexcept;  // dial and listen are the machine's again

  bool inside() const noexcept;

  // As socket, bind and listen: minus an errno, and the call's name.
  std::unique_ptr<memory_socket> listen(const network_kind& k, const net::address& at, int& err,
                                        const char*& call);
  std::unique_ptr<memory_socket> connect(const network_kind& k, const net::address& to,
                                         const context* ctx, std::int64_t until,
                                         std::error_code& ec);
  std::pair<std::unique_ptr<memory_socket>, std::unique_ptr<memory_socket>> pipe();
  std::vector<net::address> lookup(int family, std::string_view name, std::uint16_t port,
                                   bool listening);
  // Ports that have names, those of Go's own table; 0: unknown.
  static std::uint16_t service(std::string_view network, std::string_view name) noexcept;

  const options opt;
  mutex lock;  // N2
  // For calls that do not give way, as those of the machine's sockets do not. Inside it is free.
  std::unique_lock<mutex> hold() {
    std::unique_lock h(lock, std::try_to_lock);
    if (!h.owns_lock()) h.lock();
    return h;
  }

  // -- under the lock.
  std::int64_t now() noexcept;  // outside the bubble: as it was last seen
  std::int64_t arrival() noexcept { return now() + delay(); }
  std::int64_t delay() noexcept;
  bool chance(double p) noexcept;
  std::size_t part(std::size_t n) noexcept;  // of n bytes, how many go
  memory_socket* find(int type, const net::address& to) const noexcept;
  static net::address source_of(const net::address& to, std::uint16_t port) noexcept;
  static net::address sender_of(const memory_socket& s, const memory_socket* receiver,
                                const net::address& to) noexcept;
  void remove(memory_socket* s) noexcept { std::erase(sockets_, s); }
  void wake_senders() noexcept;  // of Unix datagrams

 private:
  bool taken(int type, const net::address& at, bool both) const noexcept;
  std::uint16_t free_port(int type);
  net::address free_name(int type);
  std::unique_ptr<memory_socket> connect_stream(const network_kind& k, const net::address& to,
                                                int& err);
  std::unique_ptr<memory_socket> connect_packets(const network_kind& k, const net::address& to,
                                                 int& err);

  const std::uint32_t bubble_;
  rt::atomic<bool> off_{false};
  std::shared_ptr<memory_network> kept_;  // while the bubble has it
  rt::random rng_;
  std::int64_t seen_ = 0;
  std::uint16_t last_port_ = 0;
  unsigned last_name_ = 0;
  std::vector<memory_socket*> sockets_;  // listeners, and all of datagrams
  std::map<std::string, std::uint32_t, std::less<>> hosts_;
};

template <class F>
int memory_socket::control(const F& f) {
  const auto hold = net_->hold();
  return f(this);
}

// listener::accept's call: the connection in `to`.
long accept_memory(memory_socket* listener, std::unique_ptr<memory_socket>& to) noexcept;

}  // namespace weft::detail

namespace weft::detail::sys {

// As those of sys.h.
long receive(memory_socket* s, void* b, std::size_t n) noexcept;
long receive(memory_socket* s, const iovec* v, std::size_t n) noexcept;
long receive_from(memory_socket* s, void* b, std::size_t n, sockaddr* from,
                  socklen_t* size) noexcept;
long send(memory_socket* s, const void* b, std::size_t n) noexcept;
long send(memory_socket* s, const iovec* v, std::size_t n) noexcept;
long send_to(memory_socket* s, const void* b, std::size_t n, const sockaddr* to,
             socklen_t size) noexcept;
long send_file(memory_socket* s, int file, off_t offset, std::size_t n) noexcept;
int set_option(memory_socket* s, int level, int name, int value) noexcept;
int set_linger(memory_socket* s, int seconds) noexcept;
int shutdown(memory_socket* s, int how) noexcept;
int duplicate(memory_socket* s) noexcept;

}  // namespace weft::detail::sys
