// SPDX-License-Identifier: Apache-2.0
// The least program: one goroutine, waited for.
#include <weft/go.hpp>
#include <weft/run.hpp>

int main() {
  return weft::run([] { weft::async([] {}).wait(); });
}
