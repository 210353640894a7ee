// SPDX-License-Identifier: Apache-2.0
// The least program: one fiber, waited for.
#include <boost/fiber/fiber.hpp>

int main() {
  boost::fibers::fiber([] {}).join();
}
