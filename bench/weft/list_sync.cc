// SPDX-License-Identifier: Apache-2.0
// Locks and their kin, from the benchmarks that Go ships with package sync.
#include "list.h"

#include <array>
#include <shared_mutex>
#include <vector>

namespace {

using bench::parallel;

void mutex_uncontended(long n) {
  parallel(n, [](long turns) {
    weft::mutex mu;
    for (long i = 0; i < turns; ++i) {
      mu.lock();
      mu.unlock();
    }
  });
}

template <long units, long factor>
void mutex_shared(long n) {
  weft::mutex mu;
  parallel(
      n,
      [&](long turns) {
        for (long i = 0; i < turns; ++i) {
          mu.lock();
          mu.unlock();
          bench::work(units);
        }
      },
      factor);
}

// One in four locks; the others touch 32 KiB and give way through a goroutine of their own.
void mutex_no_spin(long n) {
  weft::mutex mu;
  parallel(
      n,
      [&](long turns) {
        std::vector<long> data(4096);
        const weft::chan<bool> c;
        for (long i = 0; i < turns; ++i) {
          if (i % 4 == 0) {
            mu.lock();
            mu.unlock();
            continue;
          }
          for (std::size_t k = 0; k < data.size(); k += 4) ++data[k];
          weft::go([=] { c.send(true); });
          (void)c.recv();
        }
      },
      4);
}

// Each locks and then touches 128 KiB.
void mutex_spin(long n) {
  weft::mutex mu;
  parallel(n, [&](long turns) {
    std::vector<long> data(16 * 1024);
    for (long i = 0; i < turns; ++i) {
      mu.lock();
      mu.unlock();
      for (std::size_t k = 0; k < data.size(); k += 4) ++data[k];
    }
  });
}

void rwmutex_uncontended(long n) {
  parallel(n, [](long turns) {
    weft::shared_mutex mu;
    for (long i = 0; i < turns; ++i) {
      mu.lock_shared();
      mu.lock_shared();
      mu.unlock_shared();
      mu.unlock_shared();
      mu.lock();
      mu.unlock();
    }
  });
}

// One in `every` writes.
template <long every, long units>
void rwmutex(long n) {
  weft::shared_mutex mu;
  parallel(n, [&](long turns) {
    for (long i = 1; i <= turns; ++i) {
      if (i % every == 0) {
        mu.lock();
        mu.unlock();
      } else {
        mu.lock_shared();
        bench::work(units);
        mu.unlock_shared();
      }
    }
  });
}

void semaphore_uncontended(long n) {
  parallel(n, [](long turns) {
    weft::semaphore s(1);
    for (long i = 0; i < turns; ++i) {
      s.acquire();
      s.release();
    }
  });
}

void semaphore_contended(long n) {
  weft::semaphore s(1);
  parallel(n, [&](long turns) {
    for (long i = 0; i < turns; ++i) {
      s.acquire();
      s.release();
    }
  });
}

void wg_uncontended(long n) {
  parallel(n, [](long turns) {
    weft::wait_group wg;
    for (long i = 0; i < turns; ++i) {
      wg.add(1);
      wg.done();
      wg.wait();
    }
  });
}

template <long units>
void wg_add_done(long n) {
  weft::wait_group wg;
  parallel(n, [&](long turns) {
    for (long i = 0; i < turns; ++i) {
      wg.add(1);
      bench::work(units);
      wg.done();
    }
  });
}

template <long units>
void wg_wait(long n) {
  weft::wait_group wg;
  parallel(n, [&](long turns) {
    for (long i = 0; i < turns; ++i) {
      wg.wait();
      bench::work(units);
    }
  });
}

void wg_actually_wait(long n) {
  parallel(n, [](long turns) {
    for (long i = 0; i < turns; ++i) {
      weft::wait_group wg;
      wg.go([] {});
      wg.wait();
    }
  });
}

void once(long n) {
  weft::once o;
  parallel(n, [&](long turns) {
    for (long i = 0; i < turns; ++i) o.call([] {});
  });
}

void once_value(long n) {
  const auto value = weft::once_value([] { return 1; });
  parallel(n, [&](long turns) {
    for (long i = 0; i < turns; ++i)
      if (value() != 1) std::abort();
  });
}

// k + 1 goroutines in a rotating barrier: the last one to come wakes the others.
template <int k>
void cond(long n) {
  weft::mutex mu;
  weft::condition_variable cv;
  int there = 0;
  long round = 0;
  weft::scope s;
  for (int g = 0; g <= k; ++g) {
    s.go([&] {
      std::unique_lock lock(mu);
      while (round < n) {
        if (++there == k + 1) {
          there = 0;
          ++round;
          cv.notify_all();
        } else {
          cv.wait(lock, [&, now = round] { return round != now; });
        }
      }
    });
  }
  s.wait();
}

constexpr bench::workload workloads[] = {
    {"list_mutex_uncontended", bench::ns_per_op<mutex_uncontended>},
    {"list_mutex", bench::ns_per_op<mutex_shared<0, 1>>},
    {"list_mutex_slack", bench::ns_per_op<mutex_shared<0, 10>>},
    {"list_mutex_work", bench::ns_per_op<mutex_shared<100, 1>>},
    {"list_mutex_work_slack", bench::ns_per_op<mutex_shared<100, 10>>},
    {"list_mutex_no_spin", bench::ns_per_op<mutex_no_spin>},
    {"list_mutex_spin", bench::ns_per_op<mutex_spin>},
    {"list_rwmutex_uncontended", bench::ns_per_op<rwmutex_uncontended>},
    {"list_rwmutex_write100", bench::ns_per_op<rwmutex<100, 0>>},
    {"list_rwmutex_write10", bench::ns_per_op<rwmutex<10, 0>>},
    {"list_rwmutex_work_write100", bench::ns_per_op<rwmutex<100, 100>>},
    {"list_rwmutex_work_write10", bench::ns_per_op<rwmutex<10, 100>>},
    {"list_semaphore_uncontended", bench::ns_per_op<semaphore_uncontended>},
    {"list_semaphore_contended", bench::ns_per_op<semaphore_contended>},
    {"list_wg_uncontended", bench::ns_per_op<wg_uncontended>},
    {"list_wg_add_done", bench::ns_per_op<wg_add_done<0>>},
    {"list_wg_add_done_work", bench::ns_per_op<wg_add_done<100>>},
    {"list_wg_wait", bench::ns_per_op<wg_wait<0>>},
    {"list_wg_wait_work", bench::ns_per_op<wg_wait<100>>},
    {"list_wg_actually_wait", bench::ns_per_op<wg_actually_wait>},
    {"list_once", bench::ns_per_op<once>},
    {"list_once_value", bench::ns_per_op<once_value>},
    {"list_cond_1", bench::ns_per_op<cond<1>>},
    {"list_cond_8", bench::ns_per_op<cond<8>>},
    {"list_cond_32", bench::ns_per_op<cond<32>>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
