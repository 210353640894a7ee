// SPDX-License-Identifier: Apache-2.0
// The commands. Each throws failure; what it has to say goes to standard output.
#pragma once

#include <string_view>

#include "options.h"
#include "process.h"
#include "render.h"

namespace weft::tool {

void dump(const options& o);
void stats(const options& o);
void trace(const options& o);
void list();
void top(const options& o);  // top.cc

sample take_sample(const target& t);
// All of it to standard output; throws failure if that cannot be.
void say(std::string_view text);

}  // namespace weft::tool
