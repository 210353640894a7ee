// SPDX-License-Identifier: Apache-2.0
//! The least program: one task, waited for.

#[tokio::main]
async fn main() {
    tokio::spawn(async {}).await.unwrap();
}
