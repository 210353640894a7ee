// SPDX-License-Identifier: Apache-2.0
//! Tasks: yields, spawns, many that wait.
use crate::report;
use std::{sync::Arc, time::Duration, time::Instant};
use tokio::sync::Semaphore;

/// n yields, shared evenly by k tasks.
pub async fn yields(k: usize, n: usize) {
    let all: Vec<_> = (0..k)
        .map(|i| {
            tokio::spawn(async move {
                for _ in 0..n / k + usize::from(i < n % k) {
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in all {
        task.await.unwrap();
    }
}

pub async fn spawn_join(n: usize) {
    for _ in 0..n {
        tokio::spawn(async {}).await.unwrap();
    }
}

pub async fn spawn_batch(n: usize) {
    let all: Vec<_> = (0..n).map(|_| tokio::spawn(async {})).collect();
    for task in all {
        task.await.unwrap();
    }
}

/// VmRSS + VmPTE in bytes.
fn memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = |line: &str| line.split_whitespace().nth(1).and_then(|k| k.parse::<f64>().ok());
    let ours = |l: &&str| l.starts_with("VmRSS:") || l.starts_with("VmPTE:");
    status.lines().filter(ours).filter_map(kib).sum::<f64>() * 1024.0
}

/// n tasks wait for one gate: what each takes of memory, and to start and wake.
pub async fn parked(n: usize) {
    let (gate, there) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let before = memory();
    let start = Instant::now();
    let mut all = Vec::with_capacity(n);
    for _ in 0..n {
        let (gate, there) = (gate.clone(), there.clone());
        all.push(tokio::spawn(async move {
            there.add_permits(1);
            let _ = gate.acquire().await;
        }));
    }
    let _ = there.acquire_many(n as u32).await.unwrap();
    let spawned = start.elapsed();
    let bytes = memory() - before;
    let start = Instant::now();
    gate.close();
    for task in all {
        task.await.unwrap();
    }
    let woken = start.elapsed();
    report("parked_bytes", bytes / n as f64, "B");
    report("parked_spawn", spawned.as_nanos() as f64 / n as f64, "ns");
    report("parked_wake", woken.as_nanos() as f64 / n as f64, "ns");
}

fn cpu_microseconds() -> f64 {
    // SAFETY: getrusage fills the structure that it is given.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// What a program costs that does nothing: CPU time while 1000 tasks wait.
pub async fn idle(name: &str, milliseconds: usize) {
    let gate = Arc::new(Semaphore::new(0));
    for _ in 0..1000 {
        let gate = gate.clone();
        tokio::spawn(async move {
            let _ = gate.acquire().await;
        });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = cpu_microseconds();
    tokio::time::sleep(Duration::from_millis(milliseconds as u64)).await;
    report(name, (cpu_microseconds() - before) * 1e3 / milliseconds as f64, "us/s");
}
