// SPDX-License-Identifier: Apache-2.0
// The least program: one thread, waited for.
#include <thread>

int main() {
  std::thread([] {}).join();
}
