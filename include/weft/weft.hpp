// SPDX-License-Identifier: Apache-2.0
// All of weft.
#pragma once

#include <weft/chan.hpp>
#include <weft/context.hpp>
#include <weft/debug.hpp>
#include <weft/fault.hpp>
#include <weft/file.hpp>
#include <weft/go.hpp>
#include <weft/map.hpp>
#include <weft/net.hpp>
#include <weft/pool.hpp>
#include <weft/run.hpp>
#include <weft/select.hpp>
#include <weft/signal.hpp>
#include <weft/sync.hpp>
#include <weft/testing.hpp>
#include <weft/thread.hpp>
#include <weft/time.hpp>
