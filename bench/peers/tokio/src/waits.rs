// SPDX-License-Identifier: Apache-2.0
//! Locks, timers, calls that block.
use crate::{ms_since, report};
use std::{future::Future, pin::pin, sync::Arc, task::Poll, time::Duration, time::Instant};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// n times lock, count, unlock, shared evenly by k tasks.
pub async fn locks(k: usize, n: usize) {
    let count = Arc::new(Mutex::new(0));
    let all: Vec<_> = (0..k)
        .map(|i| {
            let count = count.clone();
            tokio::spawn(async move {
                for _ in 0..n / k + usize::from(i < n % k) {
                    *count.lock().await += 1;
                }
            })
        })
        .collect();
    for task in all {
        task.await.unwrap();
    }
    assert_eq!(*count.lock().await, n);
}

pub async fn cancel(n: usize) {
    for _ in 0..n {
        let token = CancellationToken::new();
        token.cancel();
        assert!(token.is_cancelled());
    }
}

/// A sleep that has been polled is a timer that runs; dropping it stops it.
pub async fn timer_stop(n: usize) {
    for _ in 0..n {
        let mut sleep = pin!(tokio::time::sleep(Duration::from_secs(3600)));
        std::future::poll_fn(|cx| {
            assert!(sleep.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
}

/// n tasks sleep 1 to 1000 ms each.
pub async fn sleepers(name: &str, n: usize) {
    let start = Instant::now();
    let all: Vec<_> =
        (0..n).map(|i| tokio::spawn(tokio::time::sleep(Duration::from_millis(1 + i as u64 % 1000)))).collect();
    for task in all {
        task.await.unwrap();
    }
    report(name, ms_since(start), "ms");
}

pub async fn getppid(n: usize) {
    for _ in 0..n {
        tokio::task::block_in_place(std::os::unix::process::parent_id);
    }
}

/// 200 tasks, each n times asleep in the kernel for 5 ms.
pub async fn sleeps(name: &str, n: usize, announced: bool) {
    let nap = || std::thread::sleep(Duration::from_millis(5));
    let start = Instant::now();
    let all: Vec<_> = (0..200)
        .map(|_| {
            tokio::spawn(async move {
                for _ in 0..n {
                    if announced {
                        tokio::task::spawn_blocking(nap).await.unwrap();
                    } else {
                        nap();
                    }
                }
            })
        })
        .collect();
    for task in all {
        task.await.unwrap();
    }
    report(name, ms_since(start), "ms");
}
