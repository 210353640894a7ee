// SPDX-License-Identifier: Apache-2.0
//! Channels and select. n counts values that pass (round trips in chan_pingpong).
use crate::{ms_since, report};
use std::{sync::Arc, time::Instant};
use tokio::sync::{Semaphore, mpsc};

pub async fn pingpong(n: usize) {
    let (there, mut from_there) = mpsc::channel(1);
    let (back, mut from_back) = mpsc::channel(1);
    let other = tokio::spawn(async move {
        while let Some(v) = from_there.recv().await {
            if back.send(v).await.is_err() {
                return;
            }
        }
    });
    for i in 0..n {
        there.send(i).await.unwrap();
        from_back.recv().await.unwrap();
    }
    drop(there);
    other.await.unwrap();
}

/// One producer, one consumer.
pub async fn buffered(n: usize) {
    let (tx, mut rx) = mpsc::channel(128);
    let consumer = tokio::spawn(async move { while rx.recv().await.is_some() {} });
    let producer = tokio::spawn(async move {
        for i in 0..n {
            tx.send(i).await.unwrap();
        }
    });
    producer.await.unwrap();
    consumer.await.unwrap();
}

/// k producers, k consumers.
pub async fn buffered_many(k: usize, n: usize) {
    let (tx, rx) = async_channel::bounded(128);
    let mut all = Vec::new();
    for _ in 0..k {
        let (tx, rx) = (tx.clone(), rx.clone());
        all.push(tokio::spawn(async move { while rx.recv().await.is_ok() {} }));
        all.push(tokio::spawn(async move {
            for i in 0..n / k {
                tx.send(i).await.unwrap();
            }
        }));
    }
    drop((tx, rx));
    for task in all {
        task.await.unwrap();
    }
}

/// Each value goes through a select over four channels.
pub async fn select4(n: usize) {
    let receiver = || {
        let (tx, rx) = mpsc::channel(1);
        tokio::spawn(async move {
            for i in 0..n / 4 {
                tx.send(i).await.unwrap();
            }
        });
        rx
    };
    let (mut a, mut b, mut c, mut d) = (receiver(), receiver(), receiver(), receiver());
    for _ in 0..n / 4 * 4 {
        tokio::select! {
            Some(_) = a.recv() => {}
            Some(_) = b.recv() => {}
            Some(_) = c.recv() => {}
            Some(_) = d.recv() => {}
        }
    }
}

pub async fn select_default(n: usize) {
    let (_tx, mut rx) = mpsc::channel::<usize>(1);
    let mut missed = 0;
    for _ in 0..n {
        tokio::select! {
            biased;
            _ = rx.recv() => {}
            _ = std::future::ready(()) => missed += 1,
        }
    }
    assert_eq!(missed, n);
}

/// n tasks wait; one close wakes them all.
pub async fn close_wakes(name: &str, n: usize) {
    let (gate, there) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let mut all = Vec::with_capacity(n);
    for _ in 0..n {
        let (gate, there) = (gate.clone(), there.clone());
        all.push(tokio::spawn(async move {
            there.add_permits(1);
            let _ = gate.acquire().await;
        }));
    }
    let _ = there.acquire_many(n as u32).await.unwrap();
    let start = Instant::now();
    gate.close();
    for task in all {
        task.await.unwrap();
    }
    report(name, start.elapsed().as_nanos() as f64 / n as f64, "ns");
}

/// The first n primes by a chain of filters, one task each.
pub async fn sieve(name: &str, n: usize) {
    let start = Instant::now();
    let (tx, mut rx) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut i = 2;
        while tx.send(i).await.is_ok() {
            i += 1;
        }
    });
    for _ in 0..n {
        let prime: usize = rx.recv().await.unwrap();
        let (out, next) = mpsc::channel(1);
        let mut input = std::mem::replace(&mut rx, next);
        tokio::spawn(async move {
            while let Some(i) = input.recv().await {
                if i % prime != 0 && out.send(i).await.is_err() {
                    return;
                }
            }
        });
    }
    report(name, ms_since(start), "ms");
}
