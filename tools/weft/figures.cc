// SPDX-License-Identifier: Apache-2.0
// The text format of Prometheus: `name value` and `name{label="x"} value`, lines with # are
// comments.
#include "figures.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "failure.h"

namespace weft::tool {
namespace {

double number(std::string_view text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  double v = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (err != std::errc() || end != text.data() + text.size())
    throw failure{status::failed, "not a figure: '" + std::string(text) + "'"};
  return v;
}

}  // namespace

figures figures::parse(std::string_view text) {
  figures f;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.rfind(' ');
    if (space == std::string_view::npos || space == 0)
      throw failure{status::failed, "not a line of figures: '" + std::string(line) + "'"};
    f.values_[std::string(line.substr(0, space))] = number(line.substr(space + 1));
  }
  return f;
}

double figures::operator[](std::string_view name) const {
  const auto at = values_.find(name);
  return at == values_.end() ? 0 : at->second;
}

histogram figures::times(const std::string& name) const {
  const std::string prefix = name + "_bucket{le=\"";
  histogram h;
  for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix);
       ++at) {
    std::string_view bound = at->first;
    bound.remove_prefix(prefix.size());
    h.buckets.push_back({number(bound.substr(0, bound.find('"'))), at->second});
  }
  std::sort(h.buckets.begin(), h.buckets.end(),
            [](const auto& a, const auto& b) { return a.bound < b.bound; });
  return h;
}

std::vector<double> figures::per_p(const std::string& name) const {
  std::vector<double> all;
  for (;;) {
    const auto at = values_.find(name + "{p=\"" + std::to_string(all.size()) + "\"}");
    if (at == values_.end()) return all;
    all.push_back(at->second);
  }
}

histogram histogram::since(const histogram& before) const {
  if (before.buckets.size() != buckets.size() || before.count() > count()) return *this;
  histogram h = *this;
  for (std::size_t i = 0; i < buckets.size(); ++i)
    h.buckets[i].below = std::max(0.0, h.buckets[i].below - before.buckets[i].below);
  return h;
}

std::optional<double> histogram::quantile(double q) const {
  if (count() <= 0) return std::nullopt;
  const double rank = q * count();
  for (const bucket& b : buckets) {
    if (b.below >= rank) return b.bound;
  }
  return buckets.back().bound;
}

}  // namespace weft::tool
