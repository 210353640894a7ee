// SPDX-License-Identifier: Apache-2.0
// The text form of Go's profiles (`debug=1`): a head, then each stack with how often it was seen.
// Allocates: when the world runs again.
#pragma once

#include <string>
#include <string_view>

#include "debug/traces.h"

namespace weft::rt {

// visible: without the frames of the runtime, of which there is more than one way to the same wait;
// with them if there is nothing else. append_stack: " @ 0xPC 0xPC\n", then
// "#\t0xPC\tf+0x1f\t/path/file.cc:42\n" for every frame that has a name. label: a line of its own
// in between; empty: none.
trace visible(const trace& t, arena& memory, symbols& names);
void append_stack(std::string& out, const trace& t, symbols& names, std::string_view label = {});

// "TITLE: total N", then those that stand at the same place under the same name as one entry; the
// most frequent first.
std::string goroutine_profile(std::string_view title, const arena_list<g_record>& gs, arena& memory,
                              symbols& names);

// Where all goroutines stand; in one stop of the world. profiles.cc
void take_goroutines(arena& memory, arena_list<g_record>& out);

}  // namespace weft::rt
