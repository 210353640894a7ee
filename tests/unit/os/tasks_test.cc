// SPDX-License-Identifier: Apache-2.0
#include "os/tasks.h"

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/runtime.h"

namespace weft::rt {
namespace {

// TSan has one of its own from the first thread on. One that has been joined is among the tasks for
// a moment more: the kernel tells who joins before it takes it off the list.
void have_had_a_thread() {
  std::string task = "/proc/self/task/";
  std::thread([&] { task += std::to_string(::syscall(SYS_gettid)); }).join();
  ASSERT_TRUE(test::eventually([&] { return ::access(task.c_str(), F_OK) != 0; }));
}

TEST(Tasks, CountsThreads) {
  have_had_a_thread();
  expect_workers();
  const std::uint32_t before = count_threads(0);
  ASSERT_GE(before, 1U);
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      ::pthread_setname_np(::pthread_self(), "iou-wrk-1");  // in name only
      stop.wait(false);
    });
  }
  EXPECT_TRUE(test::eventually([&] { return count_threads(before) == before + 3; }));
  EXPECT_EQ(count_threads(before + 3), before + 3);
  stop = true;
  stop.notify_all();
  for (std::thread& t : others) t.join();
  EXPECT_TRUE(test::eventually([&] { return count_threads(before) == before; }));
}

// One that a request has to be given to: to sync a file.
TEST(Tasks, WorkersOfTheKernelAreNoThreads) {
  have_had_a_thread();
  expect_workers();
  const std::uint32_t before = count_threads(0);
  io_uring_params p{};
  const int ring = static_cast<int>(::syscall(SYS_io_uring_setup, 4, &p));
  if (ring < 0) GTEST_SKIP() << "no io_uring here";
  const auto map = [ring](std::size_t size, std::uint64_t what) {
    return static_cast<char*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_POPULATE, ring, static_cast<off_t>(what)));
  };
  char* q = map(p.sq_off.array + p.sq_entries * sizeof(std::uint32_t), IORING_OFF_SQ_RING);
  auto* requests =
      reinterpret_cast<io_uring_sqe*>(map(p.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
  const int file = static_cast<int>(::syscall(SYS_memfd_create, "synced", 0));
  std::memset(requests, 0, sizeof *requests);
  requests[0].opcode = IORING_OP_FSYNC;
  requests[0].fd = file;
  reinterpret_cast<std::uint32_t*>(q + p.sq_off.array)[0] = 0;
  std::atomic_ref(*reinterpret_cast<std::uint32_t*>(q + p.sq_off.tail)).store(1);
  ASSERT_EQ(::syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0), 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(count_threads(before), before);
  std::atomic<bool> stop{false};
  std::thread other([&] { stop.wait(false); });
  for (int i = 0; i < 100; ++i) EXPECT_GT(count_threads(before), before);
  EXPECT_EQ(count_threads(before + 1), before + 1);
  stop = true;
  stop.notify_all();
  other.join();
  ::close(file);
  ::close(ring);
}

}  // namespace
}  // namespace weft::rt
