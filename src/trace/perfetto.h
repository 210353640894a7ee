// SPDX-License-Identifier: Apache-2.0
// Trace records to a file that ui.perfetto.dev opens: Perfetto's protobuf, written by hand.
//
// Rejected: Chrome's JSON, which is five times as large and is read into memory whole; a format of
// our own with a converter, which nobody has at hand when he needs it.
//
// What stands where:
//   a track for each P    'M3' while M 3 has it, and within that 'G12 name' while G 12 runs
//   a track for each M    'syscall G12', 'idle', 'polling', 'spinning'
//   a track for each goroutine that has regions, and one for the syncs
// Wake-ups, spawns, steals and the like are instants on the track of the P, or of the M that has
// none, on which they happened. Each ring is a packet sequence of its own, so its packets need only
// the time since the one before, and the names come from a table at its beginning.
//
// A record says where a goroutine goes; where it comes from follows from its kind, and
// tools/check_trace.py holds the two against one another.
//
// Runs on the writer's thread, or on the dump thread of a dying process: no malloc, no stdio.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trace/event.h"

namespace weft::rt {

// Text for the addresses of a stack; the result lives until the next call.
using describe_stack = std::string_view (*)(const std::uint64_t* pcs, std::size_t n) noexcept;

class perfetto_file {
 public:
  static constexpr std::uint32_t common_ring = 0;  // M i's is i + 1
  static constexpr std::uint32_t max_rings = 1U << 20;

  // Counts of the trace's clock since its beginning to CLOCK_MONOTONIC, in 32.32 fixed point.
  struct scale {
    std::int64_t base_ns = 0;
    std::uint64_t ns_per_count = 1ULL << 32;
  };

  // Takes fd over and writes the head. False: no memory.
  bool open(int fd, const scale& s, describe_stack describe) noexcept;
  // One record of a ring; after: the record that follows in the ring, or null.
  void put(std::uint32_t ring, const std::uint64_t* w, const std::uint64_t* after) noexcept;
  void flush() noexcept;
  int close() noexcept;  // 0, or the errno of the first write that failed
  bool is_open() const noexcept { return fd_ >= 0; }

 private:
  class message;
  struct event;
  static constexpr std::size_t buffer_size = 256 * 1024;

  std::int64_t time_of(std::uint64_t w0) const noexcept;
  void append(const message& packet) noexcept;
  void describe_track(std::uint64_t uuid, std::uint64_t parent, std::string_view name,
                      std::uint64_t number, bool ranked) noexcept;
  void introduce_ring(std::uint32_t ring, std::int64_t at) noexcept;
  void need_p(std::uint64_t p) noexcept;
  void need_m(std::uint64_t m) noexcept;
  void need_g(std::uint64_t g) noexcept;
  void emit(std::uint32_t ring, std::int64_t at, const event& e) noexcept;
  void begin_g(std::uint32_t ring, std::int64_t at, g_word g, const std::uint64_t* name,
               bool back) noexcept;
  void goroutine(std::uint32_t ring, std::int64_t at, const std::uint64_t* w,
                 const std::uint64_t* stack) noexcept;
  void status(std::uint32_t ring, std::int64_t at, const std::uint64_t* w) noexcept;
  void other(std::uint32_t ring, std::int64_t at, const std::uint64_t* w,
             const std::uint64_t* called_from) noexcept;
  std::uint64_t here(std::uint32_t ring, std::uint32_t p) noexcept;

  int fd_ = -1;
  int error_ = 0;
  scale scale_;
  describe_stack describe_ = nullptr;
  bool synced_ = false;  // the first picture is in the file
  std::size_t n_ = 0;
  // In one mapping.
  char* buffer_ = nullptr;
  std::int64_t* last_ = nullptr;       // time of each ring's last packet; 0: not introduced
  std::uint64_t* known_ms_ = nullptr;  // a bit for each track that is described
  std::uint64_t* doing_ = nullptr;     // a bit for each M with an open slice of m_begin
  std::uint64_t* known_gs_ = nullptr;  // goids, by their low bits
  std::uint64_t* known_stacks_ = nullptr;
  std::uint64_t known_ps_[16] = {};
};

}  // namespace weft::rt
