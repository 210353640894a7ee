// SPDX-License-Identifier: Apache-2.0
// See elf.h. Runs on any stack that has a few KiB left; not while the world is stopped (it opens
// files).
#include "debug/elf.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// NOLINTNEXTLINE(readability-redundant-declaration): weak, for older libcs
extern "C" int _dl_find_object(void*, struct dl_find_object*) noexcept __attribute__((weak));

namespace weft::rt {
namespace {

constexpr const char* names[] = {".debug_info",     ".debug_abbrev",   ".debug_line",
                                 ".debug_str",      ".debug_line_str", ".debug_ranges",
                                 ".debug_rnglists", ".debug_addr",     ".debug_str_offsets"};
static_assert(sizeof names / sizeof *names == static_cast<unsigned>(section::count));

}  // namespace

elf_file::~elf_file() {
  if (base_ != nullptr) ::munmap(const_cast<std::uint8_t*>(base_), bytes_);
}

bool elf_file::open(const char* path) noexcept {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat st {};
  void* p = MAP_FAILED;
  if (::fstat(fd, &st) == 0 && st.st_size > static_cast<off_t>(sizeof(Elf64_Ehdr))) {
    bytes_ = static_cast<std::size_t>(st.st_size);
    p = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  ::close(fd);
  if (p == MAP_FAILED) return false;
  base_ = static_cast<const std::uint8_t*>(p);
  const cursor all(base_, base_ + bytes_);
  const auto within = [&](std::uint64_t at, std::uint64_t n) {
    cursor c = all;
    c.skip(at);
    return c.part(n);
  };
  cursor c = all;
  const auto h = c.fixed<Elf64_Ehdr>();
  if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
      h.e_shentsize != sizeof(Elf64_Shdr))
    return false;
  const auto header = [&](std::uint64_t i) {
    return within(h.e_shoff + i * sizeof(Elf64_Shdr), sizeof(Elf64_Shdr)).fixed<Elf64_Shdr>();
  };
  const Elf64_Shdr shstr = header(h.e_shstrndx);
  for (unsigned i = 0; i < h.e_shnum; ++i) {
    const Elf64_Shdr s = header(i);
    if (s.sh_type == SHT_NOBITS || (s.sh_flags & SHF_COMPRESSED) != 0) continue;
    if (s.sh_type == SHT_SYMTAB || (s.sh_type == SHT_DYNSYM && symbols_.left() == 0)) {
      symbols_ = within(s.sh_offset, s.sh_size);
      const Elf64_Shdr str = header(s.sh_link);
      strings_ = within(str.sh_offset, str.sh_size);
      continue;
    }
    cursor name = within(shstr.sh_offset, shstr.sh_size);
    name.skip(s.sh_name);
    const char* text = name.text();
    for (unsigned k = 0; k < static_cast<unsigned>(section::count); ++k) {
      if (std::strcmp(text, names[k]) == 0) sections_[k] = within(s.sh_offset, s.sh_size);
    }
  }
  return true;
}

const char* elf_file::symbol(std::uint64_t addr, std::uint64_t* start) const noexcept {
  const char* best = nullptr;
  for (cursor c = symbols_; c.left() >= sizeof(Elf64_Sym);) {
    const auto s = c.fixed<Elf64_Sym>();
    if (ELF64_ST_TYPE(s.st_info) != STT_FUNC && ELF64_ST_TYPE(s.st_info) != STT_GNU_IFUNC) continue;
    if (s.st_shndx == SHN_UNDEF || addr < s.st_value || addr - s.st_value >= s.st_size) continue;
    cursor name = strings_;
    name.skip(s.st_name);
    const char* text = name.text();
    if (best != nullptr && *text == '\0') continue;
    best = text;
    *start = s.st_value;
  }
  return best;
}

bool find_loaded(std::uintptr_t pc, loaded* out) noexcept {
  if (_dl_find_object == nullptr) return false;
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(pc), &found) != 0) return false;
  const link_map* m = found.dlfo_link_map;
  out->path = m->l_name != nullptr && *m->l_name != '\0' ? m->l_name : "/proc/self/exe";
  out->bias = m->l_addr;
  out->id = m;
  return true;
}

}  // namespace weft::rt
