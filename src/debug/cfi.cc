// SPDX-License-Identifier: Apache-2.0
// See cfi.h. A pc's module is found by the loader's table, its FDE by binary search in
// .eh_frame_hdr, its row by running the CIE's and the FDE's instructions up to the pc. The row, not
// the instructions, is what a walk applies: rows are cached by pc.
//
// Left out: rules that are expressions (PLT stubs, signal trampolines). A walk that meets one goes
// on by the frame pointer.
//
// Runs on any stack. Not instrumented where it reads stacks: a sanitizer would take the reading of
// a frame's red zones for a bug. Long because it is one interpreter: tables, instructions, rows.
#include "debug/cfi.h"

#include <cstring>
#include <dlfcn.h>
#include <ucontext.h>

#include "context/context.h"
#include "debug/reader.h"
#include "sched/sched.h"

#if defined(__x86_64__)
extern "C" __attribute__((visibility("hidden"))) void weft_fault_landing();  // switch_x86_64.S
#endif

// NOLINTNEXTLINE(readability-redundant-declaration): weak, for older libcs
extern "C" int _dl_find_object(void*, struct dl_find_object*) noexcept __attribute__((weak));

namespace weft::rt {
namespace {

// -- from pc to FDE

struct module_at {
  const std::uint8_t* hdr;  // .eh_frame_hdr
};

bool find_module(std::uintptr_t pc, module_at* m) noexcept {
  if (_dl_find_object == nullptr) return false;
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(pc), &found) != 0) return false;
  m->hdr = static_cast<const std::uint8_t*>(found.dlfo_eh_frame);
  return m->hdr != nullptr;
}

std::int32_t word_at(const std::uint8_t* p) noexcept {
  std::int32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// A pointer as the tables encode it (DW_EH_PE_*), as far as linkers use it there.
std::uintptr_t encoded(cursor& c, std::uint8_t enc) noexcept {
  if (enc == 0xff) return 0;
  const auto here = reinterpret_cast<std::uintptr_t>(c.at());
  std::uintptr_t v = 0;
  switch (enc & 0x0f) {
    case 0x00:  // a whole address
    case 0x04:
    case 0x0c:
      v = c.fixed<std::uint64_t>();
      break;
    case 0x01:
      v = c.uleb();
      break;
    case 0x02:
      v = c.fixed<std::uint16_t>();
      break;
    case 0x03:
      v = c.fixed<std::uint32_t>();
      break;
    case 0x09:
      v = static_cast<std::uintptr_t>(c.sleb());
      break;
    case 0x0a:
      v = static_cast<std::uintptr_t>(std::intptr_t{c.fixed<std::int16_t>()});
      break;
    case 0x0b:
      v = static_cast<std::uintptr_t>(std::intptr_t{c.fixed<std::int32_t>()});
      break;
    default:
      c.fail();
  }
  if ((enc & 0x70) == 0x10 && v != 0) v += here;  // relative to where it stands
  return v;
}

// The FDE that begins last at or before pc; null if there is no table.
const std::uint8_t* find_fde(const std::uint8_t* hdr, std::uintptr_t pc) noexcept {
  constexpr std::uint8_t sorted = 0x3b;  // 4-byte values, relative to the header
  if (hdr[0] != 1 || hdr[3] != sorted) return nullptr;
  cursor c(hdr + 4, hdr + 64);
  encoded(c, hdr[1]);
  const std::size_t n = encoded(c, hdr[2]);
  const std::uint8_t* table = c.at();
  const auto base = reinterpret_cast<std::uintptr_t>(hdr);
  if (n == 0) return nullptr;
  const auto start = [&](std::size_t i) {
    return base + static_cast<std::uintptr_t>(std::intptr_t{word_at(table + i * 8)});
  };
  std::size_t lo = 0, hi = n;
  while (hi - lo > 1) {
    const std::size_t mid = lo + (hi - lo) / 2;
    (start(mid) <= pc ? lo : hi) = mid;
  }
  if (start(lo) > pc) return nullptr;
  return hdr + word_at(table + lo * 8 + 4);
}

// -- the instructions

struct rule {
  enum : std::uint8_t { same, undefined, offset, unknown } kind = same;
  std::int32_t at = 0;
};
struct rules {
  std::uint8_t cfa_register = 0;
  bool cfa_known = false;
  std::int32_t cfa_offset = 0;
  rule reg[cfi_registers];
};

struct cie_data {
  std::uint64_t code_align = 1;
  std::int64_t data_align = 1;
  unsigned ra = cfi_pc;
  std::uint8_t encoding = 0;
  bool augmented = false;
};

class machine {
 public:
  machine(const cie_data& cie, std::uintptr_t start, std::uintptr_t pc) noexcept
      : cie_(cie), loc_(start), pc_(pc) {}
  rules now;

  // False: something that we do not know.
  bool run(cursor c, bool initial) noexcept {
    while (!c.done() && loc_ <= pc_) {
      const auto op = c.fixed<std::uint8_t>();
      const unsigned low = op & 0x3f;
      switch (op >> 6) {
        case 1:
          if (!advance(low)) return true;
          continue;
        case 2:
          set(low, rule::offset, static_cast<std::int64_t>(c.uleb()) * cie_.data_align);
          continue;
        case 3:
          restore(low);
          continue;
        default:
          break;
      }
      switch (op) {
        case 0x00:
          break;
        case 0x01:
          loc_ = encoded(c, cie_.encoding);
          if (loc_ > pc_) return true;
          break;
        case 0x02:
          if (!advance(c.fixed<std::uint8_t>())) return true;
          break;
        case 0x03:
          if (!advance(c.fixed<std::uint16_t>())) return true;
          break;
        case 0x04:
          if (!advance(c.fixed<std::uint32_t>())) return true;
          break;
        case 0x05: {
          const std::uint64_t r = c.uleb();
          set(r, rule::offset, static_cast<std::int64_t>(c.uleb()) * cie_.data_align);
          break;
        }
        case 0x06:
          restore(c.uleb());
          break;
        case 0x07:
          set(c.uleb(), rule::undefined, 0);
          break;
        case 0x08:
          set(c.uleb(), rule::same, 0);
          break;
        case 0x09:  // in another register
          set(c.uleb(), rule::unknown, 0);
          c.uleb();
          break;
        case 0x0a:
          if (depth_ == max_depth) return false;
          stack_[depth_++] = now;
          break;
        case 0x0b:
          if (depth_ == 0) return false;
          now = stack_[--depth_];
          break;
        case 0x0c:
          cfa_register(c.uleb());
          now.cfa_offset = static_cast<std::int32_t>(c.uleb());
          break;
        case 0x0d:
          cfa_register(c.uleb());
          break;
        case 0x0e:
          now.cfa_offset = static_cast<std::int32_t>(c.uleb());
          break;
        case 0x0f:  // the CFA by an expression
          c.skip(c.uleb());
          now.cfa_known = false;
          break;
        case 0x10:
        case 0x16: {
          const std::uint64_t r = c.uleb();
          c.skip(c.uleb());
          set(r, rule::unknown, 0);
          break;
        }
        case 0x11: {
          const std::uint64_t r = c.uleb();
          set(r, rule::offset, c.sleb() * cie_.data_align);
          break;
        }
        case 0x12:
          cfa_register(c.uleb());
          now.cfa_offset = static_cast<std::int32_t>(c.sleb() * cie_.data_align);
          break;
        case 0x13:
          now.cfa_offset = static_cast<std::int32_t>(c.sleb() * cie_.data_align);
          break;
        case 0x14:
        case 0x15:  // a value, not a place
          set(c.uleb(), rule::unknown, 0);
          c.uleb();
          break;
        case 0x2d:  // aarch64: the return address is signed from here on; see strip
          break;
        case 0x2e:
          c.uleb();
          break;
        default:
          return false;
      }
      if (c.failed()) return false;
    }
    if (initial) initial_ = now;
    return !c.failed();
  }
  void keep_initial() noexcept { initial_ = now; }

 private:
  static constexpr unsigned max_depth = 8;
  bool advance(std::uint64_t by) noexcept {
    loc_ += by * cie_.code_align;
    return loc_ <= pc_;
  }
  unsigned index(std::uint64_t r) const noexcept {
    return r == cie_.ra ? cfi_pc : r < cfi_pc ? static_cast<unsigned>(r) : cfi_registers;
  }
  void set(std::uint64_t r, std::uint8_t kind, std::int64_t at) noexcept {
    const unsigned i = index(r);
    if (i >= cfi_registers) return;
    now.reg[i].kind = static_cast<decltype(rule::same)>(kind);
    now.reg[i].at = static_cast<std::int32_t>(at);
  }
  void restore(std::uint64_t r) noexcept {
    const unsigned i = index(r);
    if (i < cfi_registers) now.reg[i] = initial_.reg[i];
  }
  void cfa_register(std::uint64_t r) noexcept {
    now.cfa_register = static_cast<std::uint8_t>(r);
    now.cfa_known = r < cfi_pc;
  }

  const cie_data& cie_;
  std::uintptr_t loc_, pc_;
  rules initial_;
  rules stack_[max_depth];
  unsigned depth_ = 0;
};

bool read_cie(cursor c, cie_data* out, cursor* program) noexcept {
  c.skip(4);  // the id
  const auto version = c.fixed<std::uint8_t>();
  const char* aug = c.text();
  if (version != 1 && version != 3) return false;
  out->code_align = c.uleb();
  out->data_align = c.sleb();
  out->ra = version == 1 ? c.fixed<std::uint8_t>() : static_cast<unsigned>(c.uleb());
  if (aug[0] == 'z') {
    out->augmented = true;
    cursor a = c.part(c.uleb());
    for (++aug; *aug != '\0'; ++aug) {
      if (*aug == 'R') {
        out->encoding = a.fixed<std::uint8_t>();
      } else if (*aug == 'P') {
        encoded(a, a.fixed<std::uint8_t>());
      } else if (*aug == 'L') {
        a.skip(1);
      } else if (*aug != 'S' && *aug != 'B') {
        return false;
      }
    }
  } else if (aug[0] != '\0') {
    return false;
  }
  *program = c;
  return !c.failed();
}

// The body of the record at p: without its length.
bool record(const std::uint8_t* p, cursor* c) noexcept {
  const auto n = static_cast<std::uint32_t>(word_at(p));
  if (n == 0 || n == 0xffffffff) return false;
  *c = cursor(p + 4, p + 4 + n);
  return true;
}

bool compute_row(std::uintptr_t pc, cfi_row* row) noexcept {
  module_at m;
  if (!find_module(pc, &m)) return false;
  const std::uint8_t* fde = find_fde(m.hdr, pc);
  cursor f, c, cie_program;
  if (fde == nullptr || !record(fde, &f)) return false;
  const std::uint8_t* id_at = f.at();
  const auto back = f.fixed<std::uint32_t>();
  cie_data cie;
  if (back == 0 || !record(id_at - back, &c) || !read_cie(c, &cie, &cie_program)) return false;
  const std::uintptr_t start = encoded(f, cie.encoding);
  const std::uintptr_t length = encoded(f, cie.encoding & 0x0f);
  if (pc < start || pc - start >= length) return false;
  if (cie.augmented) f.skip(f.uleb());
  machine run(cie, start, pc);
  if (!run.run(cie_program, true) || !run.run(f, false)) return false;
  const rules& now = run.now;
  row->pc = pc;
  row->saved = 0;
  row->ends = now.reg[cfi_pc].kind == rule::undefined;
  if (row->ends) return true;
  if (!now.cfa_known || now.reg[cfi_pc].kind == rule::unknown) return false;
  row->cfa_register = now.cfa_register;
  row->cfa_offset = now.cfa_offset;
  for (unsigned i = 0; i < cfi_registers; ++i) {
    if (now.reg[i].kind != rule::offset) continue;
    if (row->saved == cfi_row::max_saved) return i > cfi_fp;  // vector registers, of no use here
    row->reg[row->saved] = static_cast<std::uint8_t>(i);
    row->at[row->saved++] = now.reg[i].at;
  }
  return true;
}

#if defined(__aarch64__)
std::uintptr_t strip(std::uintptr_t pc) noexcept {  // a signed return address (PAC)
  return pc & 0x0000ffffffffffffULL;
}
#else
std::uintptr_t strip(std::uintptr_t pc) noexcept { return pc; }
#endif

}  // namespace

WEFT_READS_STACKS bool stack_walk::load(std::uintptr_t at, std::uintptr_t* to) const noexcept {
  if (at < lo_ || at > hi_ - sizeof *to || at % sizeof *to != 0) return false;
  *to = *reinterpret_cast<const volatile std::uintptr_t*>(at);
  return true;
}

bool stack_walk::may_go_to(std::uintptr_t cfa) noexcept {
  if (cfa >= regs_.sp() && cfa <= hi_) return true;
  if (cfa <= next_lo_ || cfa > next_hi_) return false;
  lo_ = next_lo_;
  hi_ = next_hi_;
  next_lo_ = next_hi_ = 0;
  return true;
}

bool stack_walk::apply(const cfi_row& row) noexcept {
  if (row.ends) {
    ended_ = true;
    return false;
  }
  const std::uintptr_t cfa =
      regs_.r[row.cfa_register] + static_cast<std::uintptr_t>(std::intptr_t{row.cfa_offset});
  if (!may_go_to(cfa)) return false;
  const std::uintptr_t before = regs_.pc();
  bool have_pc = false;
  for (unsigned i = 0; i < row.saved; ++i) {
    std::uintptr_t v;
    if (!load(cfa + static_cast<std::uintptr_t>(std::intptr_t{row.at[i]}), &v)) return false;
    regs_.r[row.reg[i]] = v;
    have_pc |= row.reg[i] == cfi_pc;
  }
#if defined(__aarch64__)
  if (!have_pc) regs_.r[cfi_pc] = regs_.r[30];  // a leaf: still in the link register
  have_pc = true;
#endif
  const bool stuck = cfa == regs_.sp() && regs_.pc() == before;
  regs_.r[cfi_sp] = cfa;
  regs_.r[cfi_pc] = strip(regs_.r[cfi_pc]);
#if defined(__aarch64__)
  regs_.r[30] = regs_.r[cfi_pc];
#endif
  exact_ = false;
  return have_pc && !stuck && regs_.pc() != 0;
}

bool stack_walk::by_frame_pointer() noexcept {
  by_rules_ = false;
  const std::uintptr_t fp = regs_.r[cfi_fp];
  std::uintptr_t next, pc;
  if (fp < regs_.sp() || !load(fp, &next) || !load(fp + 8, &pc)) return false;
  regs_.r[cfi_fp] = next;
  regs_.r[cfi_pc] = strip(pc);
  regs_.r[cfi_sp] = fp + 16;
  exact_ = false;
  return regs_.pc() != 0;
}

#if defined(__x86_64__)
// Where debug/fault.cc has sent the goroutine: its pc and its sp lie on top of the stack. The pc is
// that of an instruction; one more makes it look like a return address.
bool stack_walk::out_of_fault() noexcept {
  std::uintptr_t pc, sp;
  if (!load(regs_.sp(), &pc) || !load(regs_.sp() + sizeof pc, &sp) || sp <= regs_.sp() || sp > hi_)
    return false;
  regs_.r[cfi_pc] = pc + 1;
  regs_.r[cfi_sp] = sp;
  exact_ = false;
  return true;
}
#endif

bool stack_walk::up() noexcept {
  // A return address may be the first byte behind a function that never returns.
  const std::uintptr_t look = regs_.pc() - (exact_ ? 0 : 1);
#if defined(__x86_64__)
  if (look - reinterpret_cast<std::uintptr_t>(&weft_fault_landing) < 8) return out_of_fault();
#endif
  cfi_row own;
  cfi_row& row = cache_ != nullptr ? cache_->rows[(look >> 2 ^ look >> 13) % cfi_cache::size] : own;
  if (row.pc != look && !compute_row(look, &row)) {
    row.pc = 0;
    return by_frame_pointer();
  }
  return apply(row);
}

standing where_it_stands(const G* g, const void* context) noexcept {
  constexpr int deep = 500;  // a microsecond each, in a handler
  stack_walk w(registers_in_signal(context), g->stk.lo, g->stk.hi, true, nullptr);
  for (int frames = 0; frames < deep; ++frames) {
    if (in_library(w.pc())) return standing::inside;
    if (!w.up()) return w.came_to_the_end() ? standing::outside : standing::unknown;
  }
  return standing::unknown;
}

#if defined(__x86_64__)
namespace {

// A return address has a call before it: direct, or through a register or memory.
WEFT_READS_STACKS bool behind_a_call(std::uintptr_t pc) noexcept {
  const auto* p = reinterpret_cast<const unsigned char*>(pc);
  if (p[-5] == 0xe8) return true;
  for (int n : {2, 3, 4, 6, 7}) {
    if (p[-n] == 0xff && (p[1 - n] & 0x38) == 0x10) return true;
  }
  return false;
}

}  // namespace

WEFT_READS_STACKS std::uintptr_t* way_out(const G* g, const void* context) noexcept {
  constexpr int deep = 500;
  stack_walk w(registers_in_signal(context), g->stk.lo, g->stk.hi, true, nullptr);
  std::uintptr_t* at = nullptr;
  std::uintptr_t back = 0;
  for (int frames = 0; frames < deep; ++frames) {
    const bool was_inside = in_library(w.pc());
    if (!w.up()) {
      // Code is read only where rules have led on from it.
      const bool sure = w.came_to_the_end() && at != nullptr && *at == back && behind_a_call(back);
      return sure ? at : nullptr;
    }
    if (!was_inside || in_library(w.pc())) continue;
    back = w.pc();
    at = reinterpret_cast<std::uintptr_t*>(w.sp() - sizeof *at);
  }
  return nullptr;
}
#else
// A return address may be in a register, or signed.
std::uintptr_t* way_out(const G*, const void*) noexcept { return nullptr; }
#endif

__attribute__((noinline)) registers registers_here() noexcept {
  registers r;
  r.r[cfi_pc] = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  // Our own frame is by the book (-fno-omit-frame-pointer): saved frame pointer, return address.
  const auto* fp = static_cast<const std::uintptr_t*>(__builtin_frame_address(0));
  r.r[cfi_fp] = fp[0];
#if defined(__x86_64__)
  r.r[cfi_sp] = reinterpret_cast<std::uintptr_t>(fp + 2);
#else  // the two lie at the bottom of our frame, whose size only the compiler knows
  r.r[cfi_sp] = reinterpret_cast<std::uintptr_t>(__builtin_dwarf_cfa());
  r.r[30] = fp[1];
#endif
  return r;
}

WEFT_READS_STACKS registers registers_saved(const void* sp) noexcept {
  registers r;
  const auto* f = static_cast<const switch_frame*>(sp);
  const auto word = [](void* const& p) { return reinterpret_cast<std::uintptr_t>(p); };
#if defined(__x86_64__)
  r.r[3] = word(f->rbx);
  r.r[6] = word(f->rbp);
  r.r[12] = word(f->r12);
  r.r[13] = word(f->r13);
  r.r[14] = word(f->r14);
  r.r[15] = word(f->r15);
  r.r[cfi_pc] = word(f->rip);
#else
  for (unsigned i = 0; i < 10; ++i) r.r[19 + i] = word(f->x[i]);
  r.r[29] = word(f->fp);
  r.r[30] = r.r[cfi_pc] = word(f->lr);
#endif
  r.r[cfi_sp] = reinterpret_cast<std::uintptr_t>(f + 1);
  return r;
}

registers registers_in_signal(const void* context) noexcept {
  registers r;
  const mcontext_t& m = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  constexpr int order[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                           REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                           REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  for (unsigned i = 0; i < cfi_registers; ++i)
    r.r[i] = static_cast<std::uintptr_t>(m.gregs[order[i]]);
#else
  for (unsigned i = 0; i < 31; ++i) r.r[i] = m.regs[i];
  r.r[cfi_sp] = m.sp;
  r.r[cfi_pc] = m.pc;
#endif
  return r;
}

}  // namespace weft::rt
