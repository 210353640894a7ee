// SPDX-License-Identifier: Apache-2.0
//! Trees of tasks: skynet, fib, matrix product.
use crate::{Run, ms_since, report};
use std::{future::Future, ops::Range, pin::Pin, sync::Arc, time::Instant};
use tokio::sync::mpsc;

fn skynet_node(out: mpsc::Sender<usize>, number: usize, size: usize) -> Run {
    Box::pin(async move {
        if size == 1 {
            out.send(number).await.unwrap();
            return;
        }
        let (tx, mut rx) = mpsc::channel(1);
        for i in 0..10 {
            tokio::spawn(skynet_node(tx.clone(), number + i * (size / 10), size / 10));
        }
        let mut sum = 0;
        for _ in 0..10 {
            sum += rx.recv().await.unwrap();
        }
        out.send(sum).await.unwrap();
    })
}

/// n leaves: a power of ten.
pub async fn skynet(name: &str, n: usize) {
    for round in 0..2 {
        let (tx, mut rx) = mpsc::channel(1);
        let start = Instant::now();
        tokio::spawn(skynet_node(tx, 0, n));
        assert_eq!(rx.recv().await.unwrap(), n * (n - 1) / 2);
        if round == 1 {
            report(name, ms_since(start), "ms");
        }
    }
}

fn fib_sequential(n: usize) -> usize {
    if n < 2 { n } else { fib_sequential(n - 1) + fib_sequential(n - 2) }
}

fn fib_forked(n: usize) -> Pin<Box<dyn Future<Output = usize> + Send>> {
    Box::pin(async move {
        if n <= 12 {
            return fib_sequential(n);
        }
        let left = tokio::spawn(fib_forked(n - 1));
        let right = fib_forked(n - 2).await;
        left.await.unwrap() + right
    })
}

pub async fn fib(name: &str, n: usize) {
    let expected = fib_sequential(n);
    fib_forked(n - 5).await;
    let start = Instant::now();
    assert_eq!(fib_forked(n).await, expected);
    report(name, ms_since(start), "ms");
}

struct Matrices {
    n: usize,
    a: Vec<f64>,
    b: Vec<f64>,
    c: *mut f64,
}
// SAFETY: tasks that run at once write different parts of c.
unsafe impl Send for Matrices {}
unsafe impl Sync for Matrices {}

type Part = Range<usize>;
fn low(r: &Part) -> Part {
    r.start..r.start + r.len() / 2
}
fn high(r: &Part) -> Part {
    r.start + r.len() / 2..r.end
}

fn multiply(m: Arc<Matrices>, rows: Part, columns: Part, sum: Part) -> Run {
    const LEAST: usize = 8;
    Box::pin(async move {
        if rows.len() >= columns.len() && rows.len() >= sum.len() && rows.len() > LEAST {
            let half = tokio::spawn(multiply(m.clone(), low(&rows), columns.clone(), sum.clone()));
            multiply(m, high(&rows), columns, sum).await;
            half.await.unwrap();
        } else if columns.len() >= sum.len() && columns.len() > LEAST {
            let half = tokio::spawn(multiply(m.clone(), rows.clone(), low(&columns), sum.clone()));
            multiply(m, rows, high(&columns), sum).await;
            half.await.unwrap();
        } else if sum.len() > LEAST {
            multiply(m.clone(), rows.clone(), columns.clone(), low(&sum)).await;
            multiply(m, rows, columns, high(&sum)).await;
        } else {
            for i in rows {
                // SAFETY: this part of the row is this task's alone.
                let c = unsafe { std::slice::from_raw_parts_mut(m.c.add(i * m.n + columns.start), columns.len()) };
                for k in sum.clone() {
                    let (a, b) = (m.a[i * m.n + k], &m.b[k * m.n + columns.start..k * m.n + columns.end]);
                    c.iter_mut().zip(b).for_each(|(c, b)| *c += a * b);
                }
            }
        }
    })
}

/// The product of two n × n matrices, split in halves down to 8 × 8 × 8; the sum is split in sequence.
pub async fn matmul(name: &str, n: usize) {
    let mut c = vec![0.0; n * n];
    let m = Arc::new(Matrices { n, a: vec![1.0; n * n], b: vec![2.0; n * n], c: c.as_mut_ptr() });
    let start = Instant::now();
    multiply(m, 0..n, 0..n, 0..n).await;
    report(name, ms_since(start), "ms");
    assert!(c[0] == 2.0 * n as f64 && c[n * n - 1] == c[0]);
}
