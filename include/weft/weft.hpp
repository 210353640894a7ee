// SPDX-License-Identifier: Apache-2.0
// All of weft.
#pragma once

#include <weft/debug.hpp>
#include <weft/go.hpp>
#include <weft/run.hpp>
