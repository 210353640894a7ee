// SPDX-License-Identifier: Apache-2.0
//! The servers: a task per connection.
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, header, service::service_fn};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("PORT {}", listener.local_addr().unwrap().port());
    listener
}

pub async fn echo() {
    let listener = listen().await;
    loop {
        let (mut conn, _) = listener.accept().await.unwrap();
        conn.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            let mut b = [0; 4096];
            loop {
                match conn.read(&mut b).await {
                    Ok(n) if n > 0 && conn.write_all(&b[..n]).await.is_ok() => {}
                    _ => return,
                }
            }
        });
    }
}

async fn greet(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut answer = Response::new(Full::new(Bytes::from_static(b"Hello, world!\n")));
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
    Ok(answer)
}

pub async fn http() {
    let listener = listen().await;
    loop {
        let (conn, _) = listener.accept().await.unwrap();
        conn.set_nodelay(true).unwrap();
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(conn), service_fn(greet)),
        );
    }
}
