// SPDX-License-Identifier: Apache-2.0
// The parameter of an overload that stands beside the one API.md names: all that makes an S, but
// not {}, which is the other's.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace weft::detail {

template <class S>
struct given : S {
  // Not for a given itself: copies are the compiler's. (The check does not read `requires`.)
  template <class A>
  requires(std::convertible_to<A, S> && !std::same_as<std::remove_cvref_t<A>, given> &&
           !std::same_as<std::remove_cvref_t<A>, std::nullptr_t>)
      given(A&& a)  // NOLINT(bugprone-forwarding-reference-overload)
      : S(std::forward<A>(a)) {}
  template <class A>
  requires std::constructible_from<S, A, std::size_t> given(A&& a, std::size_t n)
      : S(std::forward<A>(a), n) {}
  template <class A, class B>
  requires(std::constructible_from<S, A, B> && !std::integral<std::remove_cvref_t<B>>)
      given(A&& a, B&& b)
      : S(std::forward<A>(a), std::forward<B>(b)) {}
};

}  // namespace weft::detail
