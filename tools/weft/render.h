// SPDX-License-Identifier: Apache-2.0
// Figures as people read them. Pure: from what was seen to text.
#pragma once

#include <optional>
#include <string>

#include "figures.h"
#include "process.h"

namespace weft::tool {

std::string duration(std::optional<double> seconds);  // `1.5 ms`; `-`: nothing
std::string with_commas(double count);

// What was seen of a process at one moment.
struct sample {
  double at = 0;  // seconds, of any steady clock
  facts process;
  figures values;
};

std::string stats_table(const sample& s);

// One picture of `weft top`: what happened between two samples. At most `lines` lines, 0: any
// number; lines are cut off at `columns`, 0: not.
std::string top_frame(const sample& before, const sample& now, std::size_t lines = 0,
                      std::size_t columns = 0);

}  // namespace weft::tool
