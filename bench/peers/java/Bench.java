// SPDX-License-Identifier: Apache-2.0
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The workloads in virtual threads. What is timed goes before once, so that it is compiled by then.
 *
 * Left out: select and contexts, which it does not have; what depends on the runtime noticing loops and calls that block
 * (sleeper, sleeps), which hold their carrier threads.
 */
public final class Bench {
    interface Operations {
        void run(int n) throws Exception;
    }

    interface Workload {
        void run(String name, int n) throws Exception;
    }

    static void report(String metric, double value, String unit) {
        System.out.printf("RESULT %s %.4f %s%n", metric, value, unit);
    }

    static Workload each(Operations f) {
        return (name, n) -> {
            f.run(n);
            long start = System.nanoTime();
            f.run(n);
            report(name, (double) (System.nanoTime() - start) / n, "ns");
        };
    }

    static double msSince(long start) {
        return (System.nanoTime() - start) / 1e6;
    }

    static final Map<String, Workload> WORKLOADS = new TreeMap<>(Map.ofEntries(
            Map.entry("yield1", each(n -> yields(1, n))),
            Map.entry("yield2", each(n -> yields(2, n))),
            Map.entry("yield100", each(n -> yields(100, n))),
            Map.entry("yield10000", each(n -> yields(10_000, n))),
            Map.entry("spawn_join", each(Bench::spawnJoin)),
            Map.entry("spawn_batch", each(n -> crew(n, i -> { }))),
            Map.entry("parked", Bench::parked),
            Map.entry("idle1000", Bench::idle),
            Map.entry("handoff", each(Bench::handoff)),
            Map.entry("chan_pingpong", each(Bench::pingpong)),
            Map.entry("chan_buffered", each(n -> through(1, new ArrayBlockingQueue<>(128), n))),
            Map.entry("chan_buffered_4x4", each(n -> through(4, new ArrayBlockingQueue<>(128), n))),
            Map.entry("chan_unbuffered_4x4", each(n -> through(4, new SynchronousQueue<>(), n))),
            Map.entry("close_wakes", Bench::closeWakes),
            Map.entry("skynet", Bench::skynet),
            Map.entry("sieve", Bench::sieve),
            Map.entry("fib", Bench::fib),
            Map.entry("mutex1", each(n -> locks(1, n))),
            Map.entry("mutex2", each(n -> locks(2, n))),
            Map.entry("mutex100", each(n -> locks(100, n))),
            Map.entry("timer_stop", each(Bench::timerStop)),
            Map.entry("sleepers", Bench::sleepers),
            Map.entry("serve_echo", Bench::serveEcho),
            Map.entry("serve_http", Bench::serveHttp)));

    public static void main(String[] args) throws Exception {
        if (args.length == 1 && args[0].equals("--list")) {
            WORKLOADS.keySet().forEach(System.out::println);
            return;
        }
        Workload w = args.length == 2 ? WORKLOADS.get(args[0]) : null;
        if (w == null) {
            System.err.println("usage: bench_java --list | WORKLOAD N");
            System.exit(2);
        }
        FutureTask<Void> all = new FutureTask<>(() -> {
            w.run(args[0], Integer.parseInt(args[1]));
            return null;
        });
        Thread.startVirtualThread(all);
        all.get();
        System.exit(0);
    }

    /** Starts k virtual threads and waits for their end. */
    static void crew(int k, Operations f) throws InterruptedException {
        CountDownLatch left = new CountDownLatch(k);
        for (int i = 0; i < k; i++) {
            int number = i;
            Thread.startVirtualThread(() -> {
                try {
                    f.run(number);
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
                left.countDown();
            });
        }
        left.await();
    }

    static void yields(int k, int n) throws Exception {
        crew(k, g -> {
            for (int i = n / k + (g < n % k ? 1 : 0); i > 0; i--) {
                Thread.yield();
            }
        });
    }

    static void spawnJoin(int n) throws Exception {
        for (int i = 0; i < n; i++) {
            Thread.startVirtualThread(() -> { }).join();
        }
    }

    /** VmRSS + VmPTE in bytes. */
    static double memory() throws IOException {
        double kib = 0;
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:") || line.startsWith("VmPTE:")) {
                kib += Double.parseDouble(line.substring(6).replace("kB", "").strip());
            }
        }
        return kib * 1024;
    }

    static void await(CountDownLatch gate) {
        try {
            gate.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void parked(String name, int n) throws Exception {
        CountDownLatch there = new CountDownLatch(n);
        CountDownLatch gate = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(n);
        double before = memory();
        long start = System.nanoTime();
        for (int i = 0; i < n; i++) {
            Thread.startVirtualThread(() -> {
                there.countDown();
                await(gate);
                done.countDown();
            });
        }
        there.await();
        long spawned = System.nanoTime() - start;
        double bytes = memory() - before;
        start = System.nanoTime();
        gate.countDown();
        done.await();
        long woken = System.nanoTime() - start;
        report("parked_bytes", bytes / n, "B");
        report("parked_spawn", (double) spawned / n, "ns");
        report("parked_wake", (double) woken / n, "ns");
    }

    static void closeWakes(String name, int n) throws Exception {
        CountDownLatch there = new CountDownLatch(n);
        CountDownLatch gate = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(n);
        for (int i = 0; i < n; i++) {
            Thread.startVirtualThread(() -> {
                there.countDown();
                await(gate);
                done.countDown();
            });
        }
        there.await();
        long start = System.nanoTime();
        gate.countDown();
        done.await();
        report(name, (double) (System.nanoTime() - start) / n, "ns");
    }

    static double cpuMicroseconds() {
        var os = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return os.getProcessCpuTime() / 1e3;
    }

    static void idle(String name, int milliseconds) throws Exception {
        CountDownLatch never = new CountDownLatch(1);
        for (int i = 0; i < 1000; i++) {
            Thread.startVirtualThread(() -> await(never));
        }
        Thread.sleep(300);
        double before = cpuMicroseconds();
        Thread.sleep(milliseconds);
        report(name, (cpuMicroseconds() - before) * 1e3 / milliseconds, "us/s");
    }

    static volatile int seen;

    static void handoff(int n) throws Exception {
        BlockingQueue<Integer> queue = new SynchronousQueue<>();
        seen = -1;
        Thread other = Thread.startVirtualThread(() -> {
            try {
                for (int i = 0; i < n; i++) {
                    seen = queue.take();
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        for (int i = 0; i < n; i++) {
            queue.put(i);
            while (seen != i) {
                Thread.onSpinWait();
            }
        }
        other.join();
    }

    static void pingpong(int n) throws Exception {
        SynchronousQueue<Integer> there = new SynchronousQueue<>();
        SynchronousQueue<Integer> back = new SynchronousQueue<>();
        crew(2, side -> {
            for (int i = 0; i < n; i++) {
                if (side == 0) {
                    there.put(i);
                    back.take();
                } else {
                    back.put(there.take());
                }
            }
        });
    }

    /** k producers, k consumers. */
    static void through(int k, BlockingQueue<Integer> queue, int n) throws Exception {
        crew(2 * k, g -> {
            for (int i = 0; i < n / k; i++) {
                if (g % 2 == 0) {
                    queue.put(i);
                } else {
                    queue.take();
                }
            }
        });
    }

    static void node(BlockingQueue<Long> out, long number, long size) {
        try {
            if (size == 1) {
                out.put(number);
                return;
            }
            BlockingQueue<Long> in = new ArrayBlockingQueue<>(10);
            for (int i = 0; i < 10; i++) {
                long first = number + i * (size / 10);
                Thread.startVirtualThread(() -> node(in, first, size / 10));
            }
            long sum = 0;
            for (int i = 0; i < 10; i++) {
                sum += in.take();
            }
            out.put(sum);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void skynet(String name, int n) throws Exception {
        for (int round = 0; round < 2; round++) {
            BlockingQueue<Long> out = new ArrayBlockingQueue<>(1);
            long start = System.nanoTime();
            Thread.startVirtualThread(() -> node(out, 0, n));
            if (out.take() != (long) n * (n - 1) / 2) {
                throw new IllegalStateException("wrong sum");
            }
            if (round == 1) {
                report(name, msSince(start), "ms");
            }
        }
    }

    static void sieve(String name, int n) throws Exception {
        long start = System.nanoTime();
        SynchronousQueue<Integer> numbers = new SynchronousQueue<>();
        SynchronousQueue<Integer> first = numbers;
        Thread.startVirtualThread(() -> {
            try {
                for (int i = 2;; i++) {
                    first.put(i);
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        for (int k = 0; k < n; k++) {
            int prime = numbers.take();
            SynchronousQueue<Integer> in = numbers;
            SynchronousQueue<Integer> out = new SynchronousQueue<>();
            Thread.startVirtualThread(() -> {
                try {
                    for (;;) {
                        int i = in.take();
                        if (i % prime != 0) {
                            out.put(i);
                        }
                    }
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
            numbers = out;
        }
        report(name, msSince(start), "ms");
    }

    static long fibSequential(int n) {
        return n < 2 ? n : fibSequential(n - 1) + fibSequential(n - 2);
    }

    static long fibForked(int n) throws Exception {
        if (n <= 12) {
            return fibSequential(n);
        }
        FutureTask<Long> left = new FutureTask<>(() -> fibForked(n - 1));
        Thread.startVirtualThread(left);
        long right = fibForked(n - 2);
        return left.get() + right;
    }

    static void fib(String name, int n) throws Exception {
        long expected = fibSequential(n);
        fibForked(n);
        long start = System.nanoTime();
        if (fibForked(n) != expected) {
            throw new IllegalStateException("wrong");
        }
        report(name, msSince(start), "ms");
    }

    static int count;

    static void locks(int k, int n) throws Exception {
        ReentrantLock lock = new ReentrantLock();
        count = 0;
        crew(k, g -> {
            for (int i = n / k + (g < n % k ? 1 : 0); i > 0; i--) {
                lock.lock();
                try {
                    count++;
                } finally {
                    lock.unlock();
                }
            }
        });
        if (count != n) {
            throw new IllegalStateException("lost count");
        }
    }

    static void timerStop(int n) {
        ScheduledThreadPoolExecutor timers = new ScheduledThreadPoolExecutor(1);
        timers.setRemoveOnCancelPolicy(true);
        for (int i = 0; i < n; i++) {
            timers.schedule(() -> { }, 1, TimeUnit.HOURS).cancel(false);
        }
        timers.shutdownNow();
    }

    static void sleepers(String name, int n) throws Exception {
        long start = System.nanoTime();
        crew(n, i -> Thread.sleep(Duration.ofMillis(1 + i % 1000)));
        report(name, msSince(start), "ms");
    }

    static void port(int port) {
        System.out.println("PORT " + port);
        System.out.flush();
    }

    static void serveEcho(String name, int n) throws Exception {
        try (ServerSocket l = new ServerSocket(0, 4096, InetAddress.getLoopbackAddress())) {
            port(l.getLocalPort());
            for (;;) {
                var socket = l.accept();
                socket.setTcpNoDelay(true);
                Thread.startVirtualThread(() -> {
                    byte[] b = new byte[4096];
                    try (socket) {
                        var in = socket.getInputStream();
                        var out = socket.getOutputStream();
                        for (int got; (got = in.read(b)) > 0;) {
                            out.write(b, 0, got);
                        }
                    } catch (IOException e) {
                        // the client has gone
                    }
                });
            }
        }
    }

    static void serveHttp(String name, int n) throws Exception {
        byte[] body = "Hello, world!\n".getBytes(StandardCharsets.US_ASCII);
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 4096);
        server.setExecutor(Executors.newVirtualThreadPerTaskExecutor());
        server.createContext("/", exchange -> {
            exchange.getResponseHeaders().set("Content-Type", "text/plain");
            exchange.sendResponseHeaders(200, body.length);
            try (var out = exchange.getResponseBody()) {
                out.write(body);
            }
        });
        server.start();
        port(server.getAddress().getPort());
        new CountDownLatch(1).await();
    }
}
