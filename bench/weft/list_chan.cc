// SPDX-License-Identifier: Apache-2.0
// Channels and select, from the benchmarks that Go ships with its runtime.
#include "list.h"

#include <vector>

namespace {

using bench::parallel;
using ints = weft::chan<int>;

void make(long n) {
  parallel(n, [](long turns) {
    for (long i = 0; i < turns; ++i) (void)ints(8);
  });
}

void nonblocking(long n) {
  ints c;
  parallel(n, [&](long turns) {
    int v = 0;
    for (long i = 0; i < turns; ++i) (void)c.try_recv(v);
  });
}

void closed(long n) {
  ints c;
  c.close();
  parallel(n, [&](long turns) {
    for (long i = 0; i < turns; ++i) (void)c.recv();
  });
}

// Takes from one of two channels and puts into the other.
void exchange(const ints& a, const ints& b, long turns) {
  for (long i = 0; i < turns; ++i)
    weft::select(weft::recv(a, [&](std::optional<int>) { b.send(0); }),
                 weft::recv(b, [&](std::optional<int>) { a.send(0); }));
}

void select_uncontended(long n) {
  parallel(n, [](long turns) {
    ints a(1), b(1);
    a.send(0);
    exchange(a, b, turns);
  });
}

void select_async_contended(long n) {
  const ints a(weft::procs()), b(weft::procs());
  parallel(n, [&](long turns) {
    a.send(0);
    exchange(a, b, turns);
  });
}

void select_sync_contended(long n) {
  const ints a, b, c;
  const weft::chan<void> over;
  weft::scope senders;
  parallel(n, [&](long turns) {
    senders.go([=] {
      for (bool on = true; on;)
        weft::select(weft::send(a, 0), weft::send(b, 0), weft::send(c, 0),
                     weft::recv(over, [&] { on = false; }));
    });
    for (long i = 0; i < turns; ++i) weft::select(weft::recv(a), weft::recv(b), weft::recv(c));
  });
  over.close();
  senders.wait();
}

void select_nonblock(long n) {
  const ints a, b, c(1), d(1);
  parallel(n, [&](long turns) {
    for (long i = 0; i < turns; ++i) {
      weft::select(weft::recv(a), weft::otherwise());
      weft::select(weft::send(b, 0), weft::otherwise());
      weft::select(weft::recv(c), weft::otherwise());
      weft::select(weft::send(d, 0), weft::otherwise());
    }
  });
}

// 100 in, 100 out; n counts those.
void fill_and_drain(const ints& c, long turns) {
  for (long i = 0; i < turns; ++i) {
    for (int k = 0; k < 100; ++k) c.send(k);
    for (int k = 0; k < 100; ++k) (void)c.recv();
  }
}

void uncontended(long n) {
  parallel(n, [](long turns) { fill_and_drain(ints(100), turns); });
}

void contended(long n) {
  const ints c(100 * weft::procs());
  parallel(n, [&](long turns) { fill_and_drain(c, turns); });
}

template <long units>
void sync(long n) {
  const ints c;
  weft::scope s;
  for (int side = 0; side < 2; ++side) {
    s.go([c, side, n] {
      for (long i = 0; i < n; ++i) {
        if ((i + side) % 2 == 0) {
          c.send(0);
        } else {
          (void)c.recv();
        }
        bench::work(units);
      }
    });
  }
  s.wait();
}

template <int capacity, long units>
void prodcons(long n) {
  const ints c(capacity);
  weft::scope consumers;
  for (int i = 0; i < weft::procs(); ++i) {
    consumers.go([=] {
      while (c.recv()) bench::work(units);
    });
  }
  parallel(n, [&](long turns) {
    for (long i = 0; i < turns; ++i) {
      bench::work(units);
      c.send(0);
    }
  });
  c.close();
  consumers.wait();
}

void select_prodcons(long n) {
  const ints c(128);
  const weft::chan<void> over;
  const weft::timer hour(std::chrono::hours(1));
  weft::scope consumers;
  std::atomic<long> left{n};
  for (int i = 0; i < weft::procs(); ++i) {
    consumers.go([&] {
      for (bool on = true; on;)
        weft::select(weft::recv(c,
                                [&](std::optional<int>) {
                                  if (left.fetch_sub(1) == 1) over.close();
                                }),
                     weft::recv(hour.c), weft::recv(over, [&] { on = false; }));
    });
  }
  parallel(n, [&](long turns) {
    for (long i = 0; i < turns; ++i)
      weft::select(weft::send(c, 0), weft::recv(hour.c), weft::recv(over));
  });
  consumers.wait();
}

void drain_closed(long n) {
  const weft::chan<void> c(n);
  for (long i = 0; i < n; ++i) c.send();
  c.close();
  while (c.recv()) {
  }
}

void creation(long n) {
  parallel(n, [](long turns) {
    for (long i = 0; i < turns; ++i) {
      const ints c(1);
      c.send(0);
      (void)c.recv();
    }
  });
}

void semaphore(long n) {
  const weft::chan<void> c(weft::procs());
  parallel(n, [&](long turns) {
    for (long i = 0; i < turns; ++i) {
      c.send();
      c.recv();
    }
  });
}

// 1000 wait for one channel that all share, or their own, through which they are woken.
void popular(long n) {
  const weft::chan<bool> shared;
  std::vector<weft::chan<bool>> own(1000);
  weft::scope s;
  for (const auto& c : own) {
    s.go([=, turns = n / 1000] {
      for (long i = 0; i < turns; ++i) weft::select(weft::recv(shared), weft::recv(c));
    });
  }
  for (long i = 0; i < n / 1000; ++i)
    for (const auto& c : own) c.send(true);
  s.wait();
}

constexpr bench::workload workloads[] = {
    {"list_make_chan", bench::ns_per_op<make>},
    {"list_chan_nonblocking", bench::ns_per_op<nonblocking>},
    {"list_chan_closed", bench::ns_per_op<closed>},
    {"list_select_uncontended", bench::ns_per_op<select_uncontended>},
    {"list_select_async_contended", bench::ns_per_op<select_async_contended>},
    {"list_select_sync_contended", bench::ns_per_op<select_sync_contended>},
    {"list_select_nonblock", bench::ns_per_op<select_nonblock>},
    {"list_chan_uncontended", bench::ns_per_op<uncontended>},
    {"list_chan_contended", bench::ns_per_op<contended>},
    {"list_chan_sync", bench::ns_per_op<sync<0>>},
    {"list_chan_sync_work", bench::ns_per_op<sync<1000>>},
    {"list_prodcons_0", bench::ns_per_op<prodcons<0, 0>>},
    {"list_prodcons_10", bench::ns_per_op<prodcons<10, 0>>},
    {"list_prodcons_100", bench::ns_per_op<prodcons<100, 0>>},
    {"list_prodcons_work_0", bench::ns_per_op<prodcons<0, 100>>},
    {"list_prodcons_work_10", bench::ns_per_op<prodcons<10, 100>>},
    {"list_prodcons_work_100", bench::ns_per_op<prodcons<100, 100>>},
    {"list_select_prodcons", bench::ns_per_op<select_prodcons>},
    {"list_drain_closed", bench::ns_per_op<drain_closed>},
    {"list_chan_creation", bench::ns_per_op<creation>},
    {"list_chan_semaphore", bench::ns_per_op<semaphore>},
    {"list_chan_popular", bench::ns_per_op<popular>},
};

}  // namespace

int main(int argc, char** argv) { return bench::main(argc, argv, workloads); }
