// SPDX-License-Identifier: Apache-2.0
// What /metrics says, read back.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::tool {

// Counts by upper bound, each with all the smaller ones in it; bounds in seconds, rising.
struct histogram {
  struct bucket {
    double bound;
    double below;
  };
  std::vector<bucket> buckets;

  double count() const { return buckets.empty() ? 0 : buckets.back().below; }
  // What has come since. A program that starts anew counts from zero, and so do we.
  histogram since(const histogram& before) const;
  // The bound below which a part q of all lies (0 < q <= 1); nothing if there are none.
  std::optional<double> quantile(double q) const;
};

class figures {
 public:
  // Throws failure if it is not the text format of Prometheus.
  static figures parse(std::string_view text);

  double operator[](std::string_view name) const;  // 0 if it is not there
  histogram times(const std::string& name) const;
  std::vector<double> per_p(const std::string& name) const;

 private:
  std::map<std::string, double, std::less<>> values_;
};

}  // namespace weft::tool
