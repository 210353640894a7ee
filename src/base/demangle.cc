// SPDX-License-Identifier: Apache-2.0
// See demangle.h. Names are parsed into nodes and printed from there, because substitutions (S_,
// T_) repeat what was read before, and because a declarator is printed in the middle of its type.
//
// T_ is what the innermost template has for it at that moment; in a lambda's parameters, where
// nobody has anything, it is `auto`. Parameters of functions are read, to get past them, and not
// printed.
//
// Long because a grammar is: one function for each of its words.
#include "base/demangle.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace weft::rt {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

struct short_name {
  std::string_view code, text;
};

constexpr short_name builtins[] = {{"v", "void"},
                                   {"w", "wchar_t"},
                                   {"b", "bool"},
                                   {"c", "char"},
                                   {"a", "signed char"},
                                   {"h", "unsigned char"},
                                   {"s", "short"},
                                   {"t", "unsigned short"},
                                   {"i", "int"},
                                   {"j", "unsigned int"},
                                   {"l", "long"},
                                   {"m", "unsigned long"},
                                   {"x", "long long"},
                                   {"y", "unsigned long long"},
                                   {"n", "__int128"},
                                   {"o", "unsigned __int128"},
                                   {"f", "float"},
                                   {"d", "double"},
                                   {"e", "long double"},
                                   {"g", "__float128"},
                                   {"z", "..."},
                                   {"Di", "char32_t"},
                                   {"Ds", "char16_t"},
                                   {"Du", "char8_t"},
                                   {"Da", "auto"},
                                   {"Dc", "decltype(auto)"},
                                   {"Dn", "std::nullptr_t"}};

constexpr short_name standard[] = {
    {"St", "std"},          {"Sa", "std::allocator"}, {"Sb", "std::basic_string"},
    {"Ss", "std::string"},  {"Si", "std::istream"},   {"So", "std::ostream"},
    {"Sd", "std::iostream"}};

constexpr short_name operators[] = {
    {"nw", "new"}, {"na", "new[]"}, {"dl", "delete"}, {"da", "delete[]"}, {"aw", "co_await"},
    {"ps", "+"},   {"ng", "-"},     {"ad", "&"},      {"de", "*"},        {"co", "~"},
    {"pl", "+"},   {"mi", "-"},     {"ml", "*"},      {"dv", "/"},        {"rm", "%"},
    {"an", "&"},   {"or", "|"},     {"eo", "^"},      {"aS", "="},        {"pL", "+="},
    {"mI", "-="},  {"mL", "*="},    {"dV", "/="},     {"rM", "%="},       {"aN", "&="},
    {"oR", "|="},  {"eO", "^="},    {"ls", "<<"},     {"rs", ">>"},       {"lS", "<<="},
    {"rS", ">>="}, {"eq", "=="},    {"ne", "!="},     {"lt", "<"},        {"gt", ">"},
    {"le", "<="},  {"ge", ">="},    {"ss", "<=>"},    {"nt", "!"},        {"aa", "&&"},
    {"oo", "||"},  {"pp", "++"},    {"mm", "--"},     {"cm", ","},        {"pm", "->*"},
    {"pt", "->"},  {"cl", "()"},    {"ix", "[]"}};

constexpr short_name pointers[] = {{"P", "*"}, {"R", "&"}, {"O", "&&"}};

// Whose full name nobody writes.
constexpr std::string_view string_types[] = {
    "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "NSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEE"};

}  // namespace

// Bounds the recursion, and the time: names can be made that print without end.
struct demangler::deeper {
  demangler& d;
  explicit deeper(demangler& of) noexcept : d(of) { ++d.depth_, ++d.work_; }
  ~deeper() { --d.depth_; }
  bool too_much() const noexcept { return d.depth_ > max_depth || d.work_ > max_work; }
};

void demangler::start(const char* mangled) noexcept {
  at_ = mangled;
  end_ = mangled + std::strlen(mangled);
  depth_ = work_ = 0;
  arguments_ = 0;
  nodes_n_ = 1;
  known_n_ = 0;
  out_n_ = 0;
}

std::string_view demangler::finish(ref root) noexcept {
  if (root == 0) return {};
  work_ = 0;
  print(root);
  if (work_ > max_work || out_n_ == sizeof out_) {  // its beginning says enough
    while (out_n_ > sizeof out_ - 3) --out_n_;
    put("...");
  }
  return {out_, out_n_};
}

std::string_view demangler::type(const char* mangled) noexcept {
  start(mangled);
  const ref r = parse_type();
  return finish(at_ == end_ ? r : ref{0});
}

std::string_view demangler::function(const char* mangled) noexcept {
  start(mangled);
  return finish(take("_Z") ? encoding(false) : ref{0});
}

// -- small things

bool demangler::take(std::string_view s) noexcept {
  if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(s)) return false;
  at_ += s.size();
  return true;
}

demangler::ref demangler::make(kind what, ref a, ref b, std::string_view text) noexcept {
  if (nodes_n_ == max_nodes || text.size() > UINT16_MAX) return 0;
  nodes_[nodes_n_] = {text.data(), static_cast<std::uint16_t>(text.size()), a, b, what, 0};
  return nodes_n_++;
}

demangler::ref demangler::remember(ref r) noexcept {
  if (r == 0 || known_n_ == max_known) return 0;
  known_[known_n_++] = r;
  return r;
}

// To a list whose last element is `list`, which is empty; the new last one.
demangler::ref demangler::append(ref list, ref item) noexcept {
  const ref rest = make(kind::list);
  if (list == 0 || item == 0 || rest == 0) return 0;
  nodes_[list].a = item;
  nodes_[list].b = rest;
  return rest;
}

std::size_t demangler::number() noexcept {
  std::size_t v = 0;
  while (is_digit(peek()) && v < UINT16_MAX / 10 - 1)
    v = v * 10 + static_cast<std::size_t>(*at_++ - '0');
  return v;
}

std::size_t demangler::sequence() noexcept {
  std::size_t v = 0;
  if (!next_is('_')) {
    for (; is_digit(peek()) || (peek() >= 'A' && peek() <= 'Z'); ++at_) {
      v = v * 36 + static_cast<std::size_t>(is_digit(*at_) ? *at_ - '0' : *at_ - 'A' + 10);
      if (v > 100'000) return v;
    }
    ++v;
  }
  return take("_") ? v : 100'000;
}

std::uint8_t demangler::qualifiers() noexcept {
  std::uint8_t cv = 0;
  if (take("r")) cv |= is_restrict;
  if (take("V")) cv |= is_volatile;
  if (take("K")) cv |= is_const;
  return cv;
}

void demangler::discriminator() noexcept {
  if (take("__")) {
    number();
    take("_");
  } else if (peek() == '_' && is_digit(peek(1))) {
    at_ += 2;
  }
}

// -- names

demangler::ref demangler::encoding(bool parameters) noexcept {
  const deeper level(*this);
  if (level.too_much()) return 0;
  if (next_is('T') || next_is('G')) return special_name();
  const ref outer = std::exchange(arguments_, 0);
  const ref r = name();
  if (parameters && r != 0 && !next_is('E')) types_until_end();
  arguments_ = outer;
  return r;
}

// Of functions only: a thunk is named for what it leads to.
demangler::ref demangler::special_name() noexcept {
  int offsets = take("Th") ? 1 : take("Tv") ? 2 : 0;
  if (offsets == 0) return 0;
  for (; offsets > 0; --offsets) {
    take("n");
    number();
    if (!take("_")) return 0;
  }
  return encoding(false);
}

demangler::ref demangler::name() noexcept {
  if (next_is('N')) return nested_name();
  if (next_is('Z')) return local_name();
  ref r = 0;
  bool is_new = true;  // a template's name can be substituted, one that was is known already
  if (next_is('S') && peek(1) != 't') {
    r = substitution();
    is_new = false;
  } else {
    r = unqualified_name(take("St") ? text("std") : ref{0});
  }
  if (r == 0 || !next_is('I')) return r;
  if (is_new) remember(r);
  const ref arguments = template_arguments();
  return arguments != 0 ? make(kind::instance, r, arguments) : ref{0};
}

demangler::ref demangler::nested_name() noexcept {
  if (!take("N")) return 0;
  qualifiers();
  if (!take("R")) take("O");
  ref r = 0;
  while (!take("E")) {
    bool is_new = true;
    if (next_is('I')) {
      const ref arguments = template_arguments();
      r = r != 0 && arguments != 0 ? make(kind::instance, r, arguments) : ref{0};
    } else if (r == 0 && next_is('S')) {
      r = substitution();
      is_new = false;
    } else if (r == 0 && next_is('T')) {
      r = template_parameter();
    } else {
      r = unqualified_name(r);
    }
    if (r == 0) return 0;
    take("M");  // a member's initialiser
    if (is_new && !next_is('E') && remember(r) == 0) return 0;
  }
  return r;
}

demangler::ref demangler::local_name() noexcept {
  if (!take("Z")) return 0;
  const ref function = encoding(true);
  if (function == 0 || !take("E")) return 0;
  if (take("s")) {
    discriminator();
    return function;
  }
  if (take("d")) {
    number();
    if (!take("_")) return 0;
  }
  const ref entity = name();
  discriminator();
  return entity != 0 ? make(kind::scope, function, entity) : ref{0};
}

demangler::ref demangler::unqualified_name(ref scope) noexcept {
  take("L");  // internal linkage
  ref own = 0;
  if (is_digit(peek())) {
    own = source_name();
  } else if (next_is('U')) {
    own = unnamed_name();
  } else if (scope != 0 && (next_is('C') || next_is('D')) && is_digit(peek(1))) {
    own = make(kind::constructor, scope, 0, next_is('D') ? "~" : "");
    at_ += 2;
  } else {
    own = operator_name();
  }
  if (own == 0) return 0;
  while (take("B")) {  // ABI tags are nobody's business
    if (source_name() == 0) return 0;
  }
  return scope != 0 ? make(kind::scope, scope, own) : own;
}

demangler::ref demangler::source_name() noexcept {
  const std::size_t n = number();
  if (n == 0 || n > static_cast<std::size_t>(end_ - at_)) return 0;
  const std::string_view s(at_, n);
  at_ += n;
  return text(s.starts_with("_GLOBAL__N_") ? "(anonymous namespace)" : s);
}

demangler::ref demangler::operator_name() noexcept {
  if (take("cv")) {
    const ref to = parse_type();
    return to != 0 ? make(kind::conversion, to) : ref{0};
  }
  if (take("li")) {
    const ref suffix = source_name();
    return suffix != 0 ? make(kind::conversion, suffix, 0, "\"\"") : ref{0};
  }
  for (const short_name& o : operators) {
    if (take(o.code)) return make(kind::conversion, 0, 0, o.text);
  }
  return 0;
}

demangler::ref demangler::unnamed_name() noexcept {
  ref r = 0;
  if (take("Ul")) {
    const ref outer = std::exchange(arguments_, 0);
    const ref parameters = types_until_end();
    arguments_ = outer;
    if (parameters == 0 || !take("E")) return 0;
    r = make(kind::lambda, parameters);
  } else if (take("Ut")) {
    r = make(kind::unnamed);
  }
  const std::size_t n = is_digit(peek()) ? number() + 2 : 1;
  if (r == 0 || !take("_")) return 0;
  nodes_[r].n = static_cast<std::uint16_t>(n);
  return r;
}

demangler::ref demangler::substitution() noexcept {
  for (const short_name& s : standard) {
    if (take(s.code)) return text(s.text);
  }
  if (!take("S")) return 0;
  const std::size_t i = sequence();
  return i < known_n_ ? known_[i] : ref{0};
}

// -- templates

demangler::ref demangler::template_parameter() noexcept {
  if (!take("T")) return 0;
  const std::size_t i = sequence();
  if (i > max_nodes) return 0;
  if (arguments_ == 0) return text("auto");
  ref list = arguments_;
  for (std::size_t k = 0; k < i && list != 0; ++k) list = nodes_[list].b;
  return list != 0 ? nodes_[list].a : ref{0};
}

demangler::ref demangler::template_arguments() noexcept {
  const deeper level(*this);
  if (level.too_much() || !(take("I") || take("J"))) return 0;
  const ref list = make(kind::list);
  for (ref last = list; !take("E");) {
    last = append(last, template_argument());
    if (last == 0) return 0;
  }
  return arguments_ = list;
}

demangler::ref demangler::template_argument() noexcept {
  if (next_is('L')) return literal();
  if (take("X")) {  // an expression; what is neither is not for us
    const ref r = next_is('L') ? literal() : template_parameter();
    return take("E") ? r : ref{0};
  }
  if (!next_is('J')) return parse_type();
  const ref outer = arguments_;
  const ref list = template_arguments();
  arguments_ = outer;
  return list != 0 ? make(kind::pack, list) : ref{0};
}

demangler::ref demangler::literal() noexcept {
  if (!take("L")) return 0;
  if (take("_Z")) {
    const ref r = encoding(true);
    return take("E") ? r : ref{0};
  }
  const ref of = parse_type();
  if (of == 0) return 0;
  const char* from = at_;
  while (at_ != end_ && *at_ != 'E') ++at_;
  const std::string_view value(from, static_cast<std::size_t>(at_ - from));
  return take("E") ? make(kind::literal, of, 0, value) : ref{0};
}

// -- types

demangler::ref demangler::parse_type() noexcept {
  const deeper level(*this);
  if (level.too_much()) return 0;
  const ref outer = arguments_;
  const char* from = at_;
  ref r = builtin_type();
  if (r == 0) {
    r = compound_type();
    arguments_ = outer;
    const std::string_view read(from, static_cast<std::size_t>(at_ - from));
    for (const std::string_view s : string_types) {
      if (read == s) r = text("std::string");
    }
    const bool known = read.starts_with('S') && !read.starts_with("St") && !read.ends_with('E');
    if (!known) r = remember(r);
  }
  return r;
}

demangler::ref demangler::builtin_type() noexcept {
  for (const short_name& b : builtins) {
    if (take(b.code)) return text(b.text);
  }
  if (peek() == 'u' && is_digit(peek(1))) {  // a vendor's
    ++at_;
    return source_name();
  }
  return 0;
}

demangler::ref demangler::compound_type() noexcept {
  const auto is_function = [&] {
    return next_is('F') || (next_is('D') && (peek(1) == 'o' || peek(1) == 'x'));
  };
  if (const std::uint8_t cv = qualifiers()) {
    const ref of = is_function() ? function_type() : parse_type();
    const ref r = of != 0 ? make(kind::qualified, of) : ref{0};
    if (r != 0) nodes_[r].cv = cv;
    return r;
  }
  for (const short_name& p : pointers) {
    if (!take(p.code)) continue;
    const ref to = parse_type();
    return to != 0 ? make(kind::pointer, to, 0, p.text) : ref{0};
  }
  if (take("M")) {
    const ref of = parse_type(), what = parse_type();
    return of != 0 && what != 0 ? make(kind::member, of, what) : ref{0};
  }
  if (take("Dp")) return parse_type();
  if (is_function()) return function_type();
  if (next_is('A')) return array_type();
  if (next_is('T')) {
    const ref r = template_parameter();
    if (r == 0 || !next_is('I')) return r;
    remember(r);
    const ref arguments = template_arguments();
    return arguments != 0 ? make(kind::instance, r, arguments) : ref{0};
  }
  return name();
}

demangler::ref demangler::function_type() noexcept {
  const std::string_view behind = take("Do") ? " noexcept" : "";
  take("Dx");
  if (!take("F")) return 0;
  take("Y");
  const ref result = parse_type();
  const ref parameters = result != 0 ? types_until_end() : ref{0};
  const std::string_view reference = take("R") ? " &" : take("O") ? " &&" : "";
  if (parameters == 0 || !take("E")) return 0;
  return make(kind::function, result, parameters, reference.empty() ? behind : reference);
}

demangler::ref demangler::array_type() noexcept {
  if (!take("A")) return 0;
  const char* from = at_;
  while (is_digit(peek())) ++at_;
  const std::string_view size(from, static_cast<std::size_t>(at_ - from));
  if (!take("_")) return 0;
  const ref of = parse_type();
  return of != 0 ? make(kind::array, of, 0, size) : ref{0};
}

// As a list; that of a lone void is empty. Does not take the E.
demangler::ref demangler::types_until_end() noexcept {
  const ref list = make(kind::list);
  const auto is_end = [&](std::size_t k) {  // or a function's own & or &&
    return peek(k) == 'E' || ((peek(k) == 'R' || peek(k) == 'O') && peek(k + 1) == 'E');
  };
  if (next_is('v') && is_end(1)) {
    ++at_;
    return list;
  }
  for (ref last = list; !is_end(0);) {
    last = append(last, parse_type());
    if (last == 0) return 0;
  }
  return list;
}

// -- printing

void demangler::put(std::string_view s) noexcept {
  if (s.empty()) return;
  const std::size_t k = s.size() < sizeof out_ - out_n_ ? s.size() : sizeof out_ - out_n_;
  std::memcpy(out_ + out_n_, s.data(), k);
  out_n_ += k;
}

void demangler::put_number(std::size_t v) noexcept {
  char tmp[20];
  std::size_t n = sizeof tmp;
  do {
    tmp[--n] = static_cast<char>('0' + v % 10);
    v /= 10;
  } while (v != 0);
  put({tmp + n, sizeof tmp - n});
}

void demangler::print(ref r) noexcept {
  print_left(r);
  print_right(r);
}

void demangler::print_list(ref list) noexcept {
  for (bool first = true; list != 0 && nodes_[list].a != 0; list = nodes_[list].b) {
    const std::size_t before = out_n_;
    if (!first) put(", ");
    const std::size_t begun = out_n_;
    print(nodes_[list].a);
    if (out_n_ == begun) {  // an empty pack
      out_n_ = before;
    } else {
      first = false;
    }
  }
}

void demangler::print_qualifiers(std::uint8_t cv) noexcept {
  if ((cv & is_const) != 0) put(" const");
  if ((cv & is_volatile) != 0) put(" volatile");
  if ((cv & is_restrict) != 0) put(" __restrict");
}

// The class's name, as its constructor has it.
void demangler::print_last_name(ref r) noexcept {
  while (nodes_[r].what == kind::scope || nodes_[r].what == kind::instance)
    r = nodes_[r].what == kind::scope ? nodes_[r].b : nodes_[r].a;
  const node& n = nodes_[r];
  if (n.what != kind::text) {
    print(r);
    return;
  }
  std::string_view s(n.chars, n.n);
  if (const std::size_t colon = s.rfind(':'); colon != s.npos) s.remove_prefix(colon + 1);
  put(s);
}

bool demangler::is_wrapped(ref r) const noexcept {
  while (nodes_[r].what == kind::qualified) r = nodes_[r].a;
  return nodes_[r].what == kind::function || nodes_[r].what == kind::array;
}

void demangler::print_left(ref r) noexcept {
  const deeper level(*this);
  if (level.too_much()) return;
  const node& n = nodes_[r];
  const std::string_view s(n.chars, n.n);
  switch (n.what) {
    case kind::text:
      put(s);
      break;
    case kind::scope:
      print(n.a);
      put("::");
      print(n.b);
      break;
    case kind::instance:
      print(n.a);
      put("<");
      print_list(n.b);
      put(">");
      break;
    case kind::list:
      break;
    case kind::qualified: {
      const kind of = nodes_[n.a].what;
      const bool before = n.cv == is_const && of != kind::pointer && of != kind::member &&
                          of != kind::function && of != kind::array;
      if (before) put("const ");
      print_left(n.a);
      if (!before && of != kind::function) print_qualifiers(n.cv);
      break;
    }
    case kind::pointer:
      print_left(n.a);
      if (is_wrapped(n.a)) put(" (");
      put(s);
      break;
    case kind::member:
      print_left(n.b);
      put(is_wrapped(n.b) ? " (" : " ");
      print(n.a);
      put("::*");
      break;
    case kind::function:
    case kind::array:
      print_left(n.a);
      break;
    case kind::lambda:
      put("{lambda(");
      print_list(n.a);
      put(")#");
      put_number(n.n);
      put("}");
      break;
    case kind::unnamed:
      put("{unnamed type#");
      put_number(n.n);
      put("}");
      break;
    case kind::constructor:
      put(s);
      if (n.a != 0) print_last_name(n.a);
      break;
    case kind::conversion:
      put("operator");
      if (!s.empty() && s[0] >= 'a' && s[0] <= 'z') put(" ");
      put(s);
      if (n.a != 0) {
        put(" ");
        print(n.a);
      }
      break;
    case kind::literal: {
      const node& of = nodes_[n.a];
      const std::string_view type =
          of.what == kind::text ? std::string_view(of.chars, of.n) : std::string_view();
      if (type == "bool") {
        put(s == "0" ? "false" : "true");
        break;
      }
      if (type == "std::nullptr_t") {
        put("nullptr");
        break;
      }
      if (!type.ends_with("int") && !type.ends_with("long") && !type.ends_with("short")) {
        put("(");
        print(n.a);
        put(")");
      }
      if (s.starts_with('n')) put("-");
      put(s.starts_with('n') ? s.substr(1) : s);
      break;
    }
    case kind::pack:
      print_list(n.a);
      break;
  }
}

void demangler::print_right(ref r) noexcept {
  const deeper level(*this);
  if (level.too_much()) return;
  const node& n = nodes_[r];
  switch (n.what) {
    case kind::qualified:
      print_right(n.a);
      if (nodes_[n.a].what == kind::function) print_qualifiers(n.cv);
      break;
    case kind::pointer:
      if (is_wrapped(n.a)) put(")");
      print_right(n.a);
      break;
    case kind::member:
      if (is_wrapped(n.b)) put(")");
      print_right(n.b);
      break;
    case kind::function:
      put("(");
      print_list(n.b);
      put(")");
      put({n.chars, n.n});
      print_right(n.a);
      break;
    case kind::array:
      put("[");
      put({n.chars, n.n});
      put("]");
      print_right(n.a);
      break;
    default:
      break;
  }
}

}  // namespace weft::rt
