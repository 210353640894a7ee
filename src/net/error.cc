// SPDX-License-Identifier: Apache-2.0
// The network's errors: the category, and Go's texts for what is thrown. Constant-initialised and
// never destroyed, as codes may be compared before and after main. Runs on the caller's stack.
#include <cctype>
#include <string>

#include "net/socket.h"

namespace weft::net {
namespace {

class category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "weft.net"; }
  std::string message(int code) const override {
    switch (static_cast<errc>(code)) {
      case errc::no_such_host:
        return "no such host";
      case errc::lookup_failed:
        return "server misbehaving";
      case errc::unknown_network:
        return "unknown network";
      case errc::missing_port:
        return "missing port in address";
      case errc::too_many_colons:
        return "too many colons in address";
      case errc::invalid_address:
        return "invalid address";
      case errc::unknown_port:
        return "unknown port";
      case errc::no_suitable_address:
        return "no suitable address found";
    }
    return "unknown error";
  }
  std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<errc>(code)) {
      case errc::unknown_network:
      case errc::missing_port:
      case errc::too_many_colons:
      case errc::invalid_address:
      case errc::unknown_port:
        return std::errc::invalid_argument;
      case errc::no_suitable_address:
        return std::errc::address_not_available;
      default:
        return {code, *this};
    }
  }
};

// In a union: its destructor never runs.
union holder {
  category c;
  constexpr holder() noexcept : c() {}
  ~holder() {}  // NOLINT(modernize-use-equals-default)
};
constinit holder the_category;

std::string cause(std::string_view call, std::error_code ec) {
  if (ec == weft::errc::deadline_exceeded) return "i/o timeout";
  if (ec == weft::errc::canceled) return "operation was canceled";
  std::string text = ec.message();
  if (ec.category() != std::system_category()) return text;
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return std::string(call) + ": " + text;
}

}  // namespace

const std::error_category& net_category() noexcept { return the_category.c; }

op_error::~op_error() = default;

}  // namespace weft::net

namespace weft::detail {

void throw_op_error(const char* op, std::string_view network, std::string_view where,
                    std::string_view call, std::error_code ec) {
  std::string text = op;
  if (!network.empty()) text.append(" ").append(network);
  if (!where.empty()) text.append(" ").append(where);
  text.append(": ").append(net::cause(call, ec));
  throw net::op_error(ec, std::move(text));
}

void throw_failure(std::string_view op, std::string_view network, const failure& f) {
  std::string text(op);
  if (!network.empty()) text.append(" ").append(network);
  if (!f.where.empty()) {
    // `dial tcp: lookup h: no such host`, but `dial tcp 1.2.3.4:5: connect: …`
    if (!text.empty()) text += f.unresolved ? ": " : " ";
    text += f.where;
  }
  if (!text.empty()) text += ": ";
  text += f.cause.empty() ? net::cause(f.call, f.ec) : f.cause;
  throw net::op_error(f.ec, std::move(text));
}

failure unknown_network(std::string_view network) {
  failure f;
  f.ec = net::errc::unknown_network;
  f.cause = "unknown network " + std::string(network);
  return f;
}

}  // namespace weft::detail
