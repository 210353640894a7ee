// SPDX-License-Identifier: Apache-2.0
// Parameters of overloads that stand beside the one API.md names.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace weft::detail {

// All that makes an S, but not {}, which is the other's. What makes no S but an Also, its data:
// two overloads would both take a std::string.
template <class S, class Also = S>
struct given : S {
  // Not for a given itself: copies are the compiler's. (The check does not read `requires`.)
  template <class A>
  requires(std::convertible_to<A, S> && !std::same_as<std::remove_cvref_t<A>, given> &&
           !std::same_as<std::remove_cvref_t<A>, std::nullptr_t>)
      given(A&& a)  // NOLINT(bugprone-forwarding-reference-overload)
      : S(std::forward<A>(a)) {}
  template <class A>
  requires(std::convertible_to<A, Also> && !std::convertible_to<A, S>)
      given(A&& a)  // NOLINT(bugprone-forwarding-reference-overload)
      : S(data_of(std::forward<A>(a))) {}
  template <class A>
  requires std::constructible_from<S, A, std::size_t> given(A&& a, std::size_t n)
      : S(std::forward<A>(a), n) {}
  template <class A, class B>
  requires(std::constructible_from<S, A, B> && !std::integral<std::remove_cvref_t<B>>)
      given(A&& a, B&& b)
      : S(std::forward<A>(a), std::forward<B>(b)) {}

 private:
  static S data_of(const Also& a) noexcept { return S(a.data(), a.size()); }
};

// A path: text, or a std::filesystem::path, whose header not everybody wants.
struct given_path : given<std::string_view> {
  using given::given;
  template <class A>
  requires(!std::convertible_to<const A&, std::string_view> &&
           requires(const A& p) {
             { p.native() } -> std::convertible_to<std::string_view>;
           }) given_path(const A& p)
      : given(p.native()) {}
};

}  // namespace weft::detail
