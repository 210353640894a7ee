// SPDX-License-Identifier: Apache-2.0
//! The workloads in Tokio, on its multi-threaded runtime. The protocol is in bench/README.md.
//!
//! Left out: `chan_unbuffered_4x4`, as there are no channels without a buffer (the round trip takes one of capacity 1);
//! `handoff` and `sleeper`, as a task that computes is never interrupted, and what it woke last waits for it.

mod chan;
mod compute;
mod serve;
mod tasks;
mod waits;

use std::{future::Future, pin::Pin, time::Instant};

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;
type Workload = (&'static str, fn(&'static str, usize) -> Run);

pub fn report(metric: &str, value: f64, unit: &str) {
    println!("RESULT {metric} {value:.4} {unit}");
}

/// f(n) does n operations. The tenth that goes before is not timed.
pub async fn ns_per_op<F: Future>(name: &str, n: usize, f: impl Fn(usize) -> F) {
    f(n / 10 + 1).await;
    let start = Instant::now();
    f(n).await;
    report(name, start.elapsed().as_nanos() as f64 / n as f64, "ns");
}

pub fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

macro_rules! each {
    ($f:expr) => {
        |name, n| Box::pin(ns_per_op(name, n, $f))
    };
}

const WORKLOADS: &[Workload] = &[
    ("yield1", each!(|n| tasks::yields(1, n))),
    ("yield2", each!(|n| tasks::yields(2, n))),
    ("yield100", each!(|n| tasks::yields(100, n))),
    ("yield10000", each!(|n| tasks::yields(10_000, n))),
    ("spawn_join", each!(tasks::spawn_join)),
    ("spawn_batch", each!(tasks::spawn_batch)),
    ("parked", |_, n| Box::pin(tasks::parked(n))),
    ("idle1000", |name, n| Box::pin(tasks::idle(name, n))),
    ("chan_pingpong", each!(chan::pingpong)),
    ("chan_buffered", each!(chan::buffered)),
    ("chan_buffered_4x4", each!(|n| chan::buffered_many(4, n))),
    ("select4", each!(chan::select4)),
    ("select_default", each!(chan::select_default)),
    ("close_wakes", |name, n| Box::pin(chan::close_wakes(name, n))),
    ("skynet", |name, n| Box::pin(compute::skynet(name, n))),
    ("sieve", |name, n| Box::pin(chan::sieve(name, n))),
    ("fib", |name, n| Box::pin(compute::fib(name, n))),
    ("matmul", |name, n| Box::pin(compute::matmul(name, n))),
    ("mutex1", each!(|n| waits::locks(1, n))),
    ("mutex2", each!(|n| waits::locks(2, n))),
    ("mutex100", each!(|n| waits::locks(100, n))),
    ("context_cancel", each!(waits::cancel)),
    ("timer_stop", each!(waits::timer_stop)),
    ("sleepers", |name, n| Box::pin(waits::sleepers(name, n))),
    ("blocking_getppid", each!(waits::getppid)),
    ("sleeps_announced", |name, n| Box::pin(waits::sleeps(name, n, true))),
    ("sleeps_unannounced", |name, n| Box::pin(waits::sleeps(name, n, false))),
    ("serve_echo", |_, _| Box::pin(serve::echo())),
    ("serve_http", |_, _| Box::pin(serve::http())),
];

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.len() == 2 && args[1] == "--list" {
        WORKLOADS.iter().for_each(|(name, _)| println!("{name}"));
        return;
    }
    let n = args.get(2).and_then(|n| n.parse().ok()).unwrap_or(0);
    match WORKLOADS.iter().find(|(name, _)| args.len() == 3 && n > 0 && *name == args[1]) {
        // In a task: main itself would run beside the workers.
        Some((name, run)) => tokio::spawn(run(name, n)).await.unwrap(),
        None => {
            eprintln!("usage: {} --list | WORKLOAD N", args[0]);
            std::process::exit(2);
        }
    }
}
