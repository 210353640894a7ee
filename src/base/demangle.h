// SPDX-License-Identifier: Apache-2.0
// Names of types and functions as the source has them, from the names the C++ ABI gives them
// (Itanium, chapter 5.1). Ours, because abi::__cxa_demangle allocates, and who dies may hold
// malloc's lock; and the variant of it that does not is kept to itself by the shared libstdc++.
//
// Reads types, nested, local and template names, lambdas; not expressions (decltype, requires),
// which a name seldom holds: then the result is empty, and the caller prints the name as it is.
//
// Allocates nothing and locks nothing: all it needs lies in the object, some 10 KiB, and its
// recursion takes up to 8 KiB of any stack. Input is not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::rt {

class demangler {
 public:
  // Good until the next call. Empty: not understood.
  std::string_view type(const char* mangled) noexcept;      // type_info::name()
  std::string_view function(const char* mangled) noexcept;  // "_Z..."; without its parameters

 private:
  enum class kind : std::uint8_t {
    text,
    scope,        // a::b
    instance,     // a<list b>
    list,         // a, then the list b; the empty one has no a
    qualified,    // cv a
    pointer,      // a and text: *, & or &&
    member,       // b of class a
    function,     // from list b to a, with cv and text behind
    array,        // of a, as many as text says
    lambda,       // of list a, the n-th
    unnamed,      // the n-th
    constructor,  // of a; text: nothing or ~
    conversion,   // to a; or the operator text
    literal,      // of type a
    pack,         // the list a, without parentheses
  };
  struct node {
    const char* chars;
    std::uint16_t n;  // of chars; or a number
    std::uint16_t a, b;
    kind what;
    std::uint8_t cv;
  };
  using ref = std::uint16_t;  // of a node; 0: none, and then parsing has failed
  enum : std::uint8_t { is_const = 1, is_volatile = 2, is_restrict = 4 };
  struct deeper;

  void start(const char* mangled) noexcept;
  std::string_view finish(ref root) noexcept;

  // What stands at at_; each returns none if it is nothing it knows.
  ref encoding(bool parameters) noexcept;
  ref name() noexcept;
  ref nested_name() noexcept;
  ref local_name() noexcept;
  ref unqualified_name(ref scope) noexcept;
  ref source_name() noexcept;
  ref operator_name() noexcept;
  ref unnamed_name() noexcept;
  ref special_name() noexcept;
  ref substitution() noexcept;
  ref template_parameter() noexcept;
  ref template_arguments() noexcept;
  ref template_argument() noexcept;
  ref literal() noexcept;
  ref parse_type() noexcept;
  ref compound_type() noexcept;
  ref builtin_type() noexcept;
  ref function_type() noexcept;
  ref array_type() noexcept;
  ref types_until_end() noexcept;
  std::uint8_t qualifiers() noexcept;
  std::size_t number() noexcept;    // 0 if there is none
  std::size_t sequence() noexcept;  // "_" is 0, "0_" is 1
  void discriminator() noexcept;

  bool next_is(char c) const noexcept { return at_ != end_ && *at_ == c; }
  char peek(std::size_t k = 0) const noexcept {
    return static_cast<std::size_t>(end_ - at_) > k ? at_[k] : '\0';
  }
  bool take(std::string_view s) noexcept;
  ref make(kind what, ref a = 0, ref b = 0, std::string_view text = {}) noexcept;
  ref text(std::string_view s) noexcept { return make(kind::text, 0, 0, s); }
  ref remember(ref r) noexcept;  // a candidate for substitution
  ref append(ref list, ref item) noexcept;

  void print(ref r) noexcept;
  void print_left(ref r) noexcept;  // a type's declarator goes between the two
  void print_right(ref r) noexcept;
  void print_list(ref list) noexcept;
  void print_qualifiers(std::uint8_t cv) noexcept;
  void print_last_name(ref r) noexcept;
  bool is_wrapped(ref r) const noexcept;  // a function or an array: a pointer to it has parentheses
  void put(std::string_view s) noexcept;
  void put_number(std::size_t v) noexcept;

  static constexpr std::size_t max_nodes = 400, max_known = 100, max_depth = 48, max_work = 2000;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  std::size_t depth_ = 0, work_ = 0;
  ref arguments_ = 0;  // of the innermost template: what T_ means
  std::uint16_t nodes_n_ = 0, known_n_ = 0;
  node nodes_[max_nodes] = {};
  ref known_[max_known] = {};
  std::size_t out_n_ = 0;
  char out_[2048] = {};
};

}  // namespace weft::rt
