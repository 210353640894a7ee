// SPDX-License-Identifier: Apache-2.0
// An example of docs/context.md.
#include <cassert>
#include <string>
#include <weft/weft.hpp>

namespace {

struct user_key {  // a type of one's own: nobody else's keys can be equal
  bool operator==(const user_key&) const = default;
};

std::string greeting(const weft::context& ctx) {
  const auto* user = ctx.value<std::string>(user_key{});
  return "hello, " + (user != nullptr ? *user : "stranger");
}

}  // namespace

int main() {
  const weft::context ctx = weft::with_value(weft::background(), user_key{}, std::string("Ada"));
  assert(greeting(ctx) == "hello, Ada");
  assert(greeting(weft::with_value(ctx, user_key{}, nullptr)) == "hello, stranger");  // hidden

  auto [request, cancel] = weft::with_cancel(ctx);
  const weft::context audit = weft::without_cancel(request);  // goes on when the request is over
  cancel();
  assert(request.err() && !audit.err());
  assert(greeting(audit) == "hello, Ada");
}
