// SPDX-License-Identifier: Apache-2.0
// What nearly every test includes, read once a build (tests/CMakeLists.txt). A test includes what
// it uses all the same: some builds do without this file. Not weft/testing.hpp: its namespace would
// hide GoogleTest's from tests that lie in weft.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "weft/context.hpp"
#include "weft/debug.hpp"
#include "weft/go.hpp"
#include "weft/run.hpp"
#include "weft/select.hpp"
#include "weft/sync.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"
