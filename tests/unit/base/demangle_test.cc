// SPDX-License-Identifier: Apache-2.0
#include "base/demangle.h"

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

namespace fruit {
struct apple {
  struct seed {};
  enum class kind { sweet };
};
template <class T>
struct basket {};
template <class... T>
struct mixed {};
template <auto V>
struct marked {};
namespace {
struct secret {};
}  // namespace
void eat(int);
}  // namespace fruit

namespace weft::rt {
namespace {

template <class T>
std::string type() {
  demangler d;
  return std::string(d.type(typeid(T).name()));
}

std::string function(const char* mangled) {
  demangler d;
  return std::string(d.function(mangled));
}

TEST(Demangle, PlainTypes) {
  EXPECT_EQ(type<int>(), "int");
  EXPECT_EQ(type<unsigned long long>(), "unsigned long long");
  EXPECT_EQ(type<std::nullptr_t>(), "std::nullptr_t");
  EXPECT_EQ(type<char32_t>(), "char32_t");
  EXPECT_EQ(type<std::string>(), "std::string");
  EXPECT_EQ(type<std::vector<std::string>*>(),
            "std::vector<std::string, std::allocator<std::string>>*");
}

TEST(Demangle, Declarators) {
  EXPECT_EQ(type<char***>(), "char***");
  EXPECT_EQ(type<const char*>(), "const char*");
  EXPECT_EQ(type<char* const*>(), "char* const*");
  EXPECT_EQ(type<const volatile int*>(), "int const volatile*");
  EXPECT_EQ(type<int[3]>(), "int[3]");
  EXPECT_EQ(type<int(*)[3]>(), "int (*)[3]");
  EXPECT_EQ(type<void(int, char)>(), "void(int, char)");
  EXPECT_EQ(type<void (*)(int, const fruit::apple&)>(), "void (*)(int, const fruit::apple&)");
  EXPECT_EQ(type<int (*(*)(char))(long)>(), "int (* (*)(char))(long)");
  EXPECT_EQ(type<int fruit::apple::*>(), "int fruit::apple::*");
  EXPECT_EQ((type<void (fruit::apple::*)(int) const>()), "void (fruit::apple::*)(int) const");
  EXPECT_EQ((type<void (*)() noexcept>()), "void (*)() noexcept");
  EXPECT_EQ((type<void (fruit::apple::*)(int&&) &&>()), "void (fruit::apple::*)(int&&) &&");
}

TEST(Demangle, Names) {
  struct local {};
  EXPECT_EQ(type<fruit::apple>(), "fruit::apple");
  EXPECT_EQ(type<fruit::apple::seed>(), "fruit::apple::seed");
  EXPECT_EQ(type<fruit::secret>(), "fruit::(anonymous namespace)::secret");
  EXPECT_EQ(type<local>(), "weft::rt::(anonymous namespace)::Demangle_Names_Test::TestBody::local");
  const auto lambda = [](const fruit::apple&, auto...) { return 1; };
  EXPECT_TRUE(
      type<decltype(lambda)>().ends_with("::TestBody::{lambda(const fruit::apple&, auto)#1}"))
      << type<decltype(lambda)>();
}

TEST(Demangle, Templates) {
  using fruit::apple, fruit::basket, fruit::mixed, fruit::marked;
  EXPECT_EQ(type<basket<apple>>(), "fruit::basket<fruit::apple>");
  EXPECT_EQ((type<mixed<basket<apple>, basket<apple>*, apple, const apple&>>()),
            "fruit::mixed<fruit::basket<fruit::apple>, fruit::basket<fruit::apple>*, fruit::apple, "
            "const fruit::apple&>");
  EXPECT_EQ(type<mixed<>>(), "fruit::mixed<>");
  EXPECT_EQ(type<marked<-3>>(), "fruit::marked<-3>");
  EXPECT_EQ(type<marked<true>>(), "fruit::marked<true>");
  EXPECT_EQ(type<marked<3UL>>(), "fruit::marked<3>");
  EXPECT_EQ(type<marked<'a'>>(), "fruit::marked<(char)97>");
  EXPECT_EQ(type<marked<apple::kind::sweet>>(), "fruit::marked<(fruit::apple::kind)0>");
  EXPECT_EQ((type<std::map<int, std::shared_ptr<apple>>>()),
            "std::map<int, std::shared_ptr<fruit::apple>, std::less<int>, "
            "std::allocator<std::pair<const int, std::shared_ptr<fruit::apple>>>>");
}

TEST(Demangle, Functions) {
  EXPECT_EQ(function("_ZN5fruit3eatEi"), "fruit::eat");
  EXPECT_EQ(function("_ZN5fruit5appleC1Ev"), "fruit::apple::apple");
  EXPECT_EQ(function("_ZN5fruit6basketIiED0Ev"), "fruit::basket<int>::~basket");
  EXPECT_EQ(function("_ZNK5fruit5appleclEi"), "fruit::apple::operator()");
  EXPECT_EQ(function("_ZNK5fruit5applecvPKcEv"), "fruit::apple::operator const char*");
  EXPECT_EQ(function("_ZnwmSt11align_val_t"), "operator new");
  EXPECT_EQ(function("_ZlsRSoRKN5fruit5appleE"), "operator<<");
  EXPECT_EQ(function("_ZZ4mainENKUlvE0_clEv"), "main::{lambda()#2}::operator()");
  EXPECT_EQ(function("_ZZ4mainENKUlvE0_clEv.cold"), "main::{lambda()#2}::operator()");
  EXPECT_EQ(function("_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE"),
            "std::rethrow_exception");
  EXPECT_EQ(function("_ZNK1aMUlSt17integral_constantImXT_EEE_clILm24EEEDaS2_"),
            "a::{lambda(std::integral_constant<unsigned long, auto>)#1}::operator()<24>");
  EXPECT_EQ(function("_ZThn16_N5fruit5apple3eatEv"), "fruit::apple::eat");
  // Past the parameters of what a local entity lies in, and what they made known.
  EXPECT_EQ(function("_ZZN4weft3runIZ4mainEUlvE_EEiRKNS_6configEOT_ENUlPvE_4_FUNES6_"),
            "weft::run<main::{lambda()#1}>::{lambda(void*)#1}::_FUN");
}

TEST(Demangle, WhatIsNotKnownIsLeft) {
  EXPECT_EQ(function("main"), "");
  EXPECT_EQ(function("_Z"), "");
  EXPECT_EQ(function("_ZN5fruit"), "");
  EXPECT_EQ(function("_Z99999999999999999999x"), "");
  EXPECT_EQ(function("_Z1fIXplLi1ELi2EEEvv"), "");  // an expression
  demangler d;
  EXPECT_EQ(d.type(""), "");
  EXPECT_EQ(d.type("S_"), "");
  EXPECT_EQ(d.type("iX"), "");
}

// Whatever it is given: it ends, and stays within its bounds (the sanitizers see to that).
TEST(Demangle, Nonsense) {
  demangler d;
  EXPECT_EQ(d.type((std::string(100'000, 'P') + "i").c_str()), "");
  const std::string deep = [] {
    std::string s;
    for (int i = 0; i < 10'000; ++i) s += "N1aI";
    return s;
  }();
  EXPECT_EQ(d.type(deep.c_str()), "");
  std::string twice = "1aIiE";  // each argument twice the one before
  for (int i = 0; i < 12; ++i)
    twice =
        "1b"
        "I" +
        twice + "S_E";
  (void)d.type(twice.c_str());
  const std::string good =
      "_ZZN4weft3runIZ4mainEUlvE_St4pairIPFivEA3_KcEEEiRKNS_6configEOT_ENUlPvE_4_FUNES6_";
  for (std::size_t n = 0; n <= good.size(); ++n) (void)d.function(good.substr(0, n).c_str());
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char c : std::string_view("SIENZTLJXMPFA_019vUCD")) {
      std::string s = good;
      s[i] = c;
      (void)d.function(s.c_str());
      (void)d.type(s.c_str() + 2);
    }
  }
}

TEST(Demangle, ALongNameIsCut) {
  demangler d;
  const std::string name = "4000" + std::string(4000, 'x');
  const std::string_view text = d.type(name.c_str());
  EXPECT_GT(text.size(), 1000U);
  EXPECT_TRUE(text.ends_with("..."));
}

}  // namespace
}  // namespace weft::rt
