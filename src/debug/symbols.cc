// SPDX-License-Identifier: Apache-2.0
// See symbols.h. A hidden function is one of the runtime's own (weft::rt, weft::detail) or of what
// the standard library puts between a call and its callee; Go hides its own likewise.
//
// Runs on any stack that has 16 KiB left: large buffers lie in the arena.
#include "debug/symbols.h"

#include <cstdlib>
#include <cxxabi.h>

#include "base/demangle.h"

namespace weft::rt {

struct symbols::module {
  const void* id;
  std::uintptr_t bias;
  elf_file file;
  bool good;
  dwarf debug;
  module* next;
  module(const loaded& l, arena& memory, module* rest) noexcept :id(l.id), bias(l.bias),
      good(file.open(l.path)), debug(file, memory), next(rest) {}
};

struct symbols::known {
  std::uintptr_t pc;
  bool exact;
  place text;
  known* next;
};

namespace {

bool is_hidden(std::string_view f) noexcept {
  for (const std::string_view p : {"weft::rt::",
                                   "weft::detail::",
                                   "weft_switch",
                                   "weft_start",
                                   "weft_leave",
                                   "weft_call_on",
                                   "weft_entry",
                                   "weft_guarded_call",
                                   "weft_uncaught",
                                   "weft_fault_",
                                   "_Unwind_",
                                   "__cxa_throw",
                                   "__cxa_rethrow",
                                   "std::rethrow_exception",
                                   "std::__invoke",
                                   "std::invoke",
                                   "std::apply",
                                   "std::__apply",
                                   "_ZN4weft2rt",
                                   "_ZNK4weft2rt",
                                   "_ZN4weft6detail",
                                   "weft::run<",
                                   "weft::scope::detail_report",
                                   "weft::wait_group::call<",
                                   "weft::scope::call<"}) {
    if (f.starts_with(p)) return true;
  }
  return false;
}

// Functions through which goroutines are started: they are no creators.
bool is_starter(std::string_view f) noexcept {
  return is_hidden(f) || f.starts_with("weft::go<") || f.starts_with("weft::async<") ||
         f.starts_with("weft::scope::go<") || f.starts_with("weft::wait_group::go<");
}

// "ns::f<int>(int, char) const" without what begins at its last top-level parenthesis.
std::string_view without_parameters(std::string_view s) noexcept {
  int depth = 0;
  for (std::size_t i = s.size(); i-- > 0;) {
    if (s[i] == ')' && depth++ == 0 && s.substr(0, i + 1).ends_with("(anonymous namespace)"))
      return s;
    if (s[i] == '(' && --depth == 0)
      return s.substr(0, i).ends_with("operator") ? s : s.substr(0, i);
    if (depth < 0) return s;
  }
  return s;
}

}  // namespace

class symbols::text_buffer {
 public:
  void clear() noexcept { n_ = 0; }
  text_buffer& operator<<(std::string_view s) noexcept {
    const std::size_t k = s.size() < sizeof text_ - n_ ? s.size() : sizeof text_ - n_;
    std::memcpy(text_ + n_, s.data(), k);
    n_ += k;
    return *this;
  }
  text_buffer& number(std::uint64_t v, unsigned base) noexcept {
    char tmp[20];
    std::size_t n = sizeof tmp;
    do {
      tmp[--n] = "0123456789abcdef"[v % base];
      v /= base;
    } while (v != 0);
    return *this << std::string_view(tmp + n, sizeof tmp - n);
  }
  std::size_t size() const noexcept { return n_; }
  std::string_view keep(arena& memory) const noexcept { return {memory.copy({text_, n_}), n_}; }

 private:
  char text_[8192];
  std::size_t n_ = 0;
};

symbols::symbols(arena& memory, bool may_allocate) noexcept
    : memory_(memory),
      may_allocate_(may_allocate),
      table_(memory.array<known*>(buckets)),
      scratch_(memory.array<text_buffer>(3)) {}

symbols::~symbols() {
  for (module* m = modules_; m != nullptr;) {
    module* next = m->next;
    m->~module();
    m = next;
  }
}

symbols::module* symbols::module_at(std::uintptr_t pc) noexcept {
  loaded l;
  if (!find_loaded(pc, &l)) return nullptr;
  for (module* m = modules_; m != nullptr; m = m->next) {
    if (m->id == l.id) return m;
  }
  void* p = memory_.raw(sizeof(module));
  if (p == nullptr) return nullptr;
  return modules_ = ::new (p) module(l, memory_, modules_);
}

const char* symbols::demangled(const char* name) noexcept {
  if (name[0] != '_' || name[1] != 'Z') return name;
  if (demangler_ == nullptr) demangler_ = memory_.array<demangler>(1);
  if (demangler_ != nullptr) {
    if (const std::string_view ours = demangler_->function(name); !ours.empty())
      return memory_.copy(ours);
  }
  if (!may_allocate_) return name;
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  if (text == nullptr) return name;
  const char* kept = memory_.copy(without_parameters(text));
  std::free(text);
  return kept;
}

void symbols::describe(std::uintptr_t pc, std::uintptr_t look, place* out) noexcept {
  constexpr std::size_t max = 24;
  source_frame frames[max];
  std::size_t n = 0;
  std::uint64_t start = 0;
  const char* symbol = nullptr;
  if (module* m = module_at(look); m != nullptr && m->good) {
    symbol = m->file.symbol(look - m->bias, &start);
    if (symbol != nullptr) start += m->bias;
    n = m->debug.frames(look - m->bias, frames, max);
  }
  if (n == 0) n = 1;
  if (frames[n - 1].function == nullptr)
    frames[n - 1].function = symbol != nullptr ? demangled(symbol) : "?";
  text_buffer &shown = scratch_[0], &all = scratch_[1], &where = scratch_[2];
  shown.clear();
  all.clear();
  for (std::size_t i = 0; i < n; ++i) {
    const source_frame& f = frames[i];
    const std::string_view name = f.function != nullptr ? f.function : "?";
    where.clear();
    where << "\t";
    if (f.file != nullptr) {
      (where << f.file << ":").number(f.line, 10);
    } else {
      (where << "0x").number(pc, 16);
    }
    const std::size_t plain = where.size();
    if (symbol != nullptr) (where << " +0x").number(pc - start, 16);
    where << "\n";
    const std::string_view line = where.keep(memory_);
    const std::string_view call = f.inlined ? "(...)\n" : "()\n";
    // Go gives the distance from the function's start for those that have one of their own.
    const std::string_view file =
        f.inlined ? line.substr(0, plain) : line.substr(0, line.size() - 1);
    all << name << call << file << "\n";
    if (!is_hidden(name)) shown << name << call << file << "\n";
    if (out->creator.empty() && !is_starter(name)) {
      out->creator = name;
      out->created_at = line;
    }
    if (i + 1 == n && out->creator.empty()) {
      out->creator = name;
      out->created_at = line;
    }
  }
  out->lines = shown.keep(memory_);
  out->all_lines = all.keep(memory_);
}

const place& symbols::at(std::uintptr_t pc, bool exact) noexcept {
  static constexpr place nothing{"?()\n", "?()\n", "?", "\n"};
  if (table_ == nullptr || scratch_ == nullptr) return nothing;
  known*& bucket = table_[(pc >> 2 ^ pc >> 15) % buckets];
  for (known* k = bucket; k != nullptr; k = k->next) {
    if (k->pc == pc && k->exact == exact) return k->text;
  }
  auto* k = memory_.array<known>(1);
  if (k == nullptr) return nothing;
  k->pc = pc;
  k->exact = exact;
  describe(pc, exact ? pc : pc - 1, &k->text);
  k->next = bucket;
  return (bucket = k)->text;
}

}  // namespace weft::rt
