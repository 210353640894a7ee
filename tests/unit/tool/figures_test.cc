// SPDX-License-Identifier: Apache-2.0
// What the tool `weft` reads out of an answer, and what it makes of it.
#include "figures.h"

#include <cmath>
#include <gtest/gtest.h>

#include "failure.h"
#include "http.h"
#include "render.h"
#include "weft/debug.hpp"

namespace weft::tool {
namespace {

TEST(ToolHttp, Heads) {
  const auto h = parse_head(
      "HTTP/1.1 200 OK\r\nContent-Type: x\r\ncontent-LENGTH: 12\r\nWeft-Trace: recorder");
  ASSERT_TRUE(h.has_value());
  EXPECT_EQ(h->status, 200);
  EXPECT_EQ(h->length, 12U);
  EXPECT_EQ(h->trace_source, "recorder");
  for (const char* bad : {"", "hello", "HTTP/1.1 2", "HTTP/1.1 abc OK\r\nContent-Length: 1",
                          "HTTP/1.1 200 OK", "HTTP/1.1 200 OK\r\nContent-Length: x"})
    EXPECT_FALSE(parse_head(bad).has_value()) << bad;
}

constexpr const char* text =
    "# HELP a b\n# TYPE a gauge\na 12\nt{p=\"0\"} 3\nt{p=\"1\"} 4\nt{p=\"3\"} 5\n"
    "h_bucket{le=\"0.5\"} 10\nh_bucket{le=\"0.000000001\"} 0\nh_bucket{le=\"2.0\"} 90\n"
    "h_bucket{le=\"+Inf\"} 100\nh_sum 7.25\n";

TEST(ToolFigures, Parse) {
  const figures f = figures::parse(text);
  EXPECT_EQ(f["a"], 12);
  EXPECT_EQ(f["h_sum"], 7.25);
  EXPECT_EQ(f["not there"], 0);
  EXPECT_EQ(f.per_p("t"), (std::vector<double>{3, 4}));
  EXPECT_THROW(figures::parse("a\n"), failure);
  EXPECT_THROW(figures::parse("a x\n"), failure);
}

TEST(ToolFigures, Quantiles) {
  const histogram h = figures::parse(text).times("h");
  ASSERT_EQ(h.buckets.size(), 4U);
  EXPECT_EQ(h.quantile(0.1), 0.5);
  EXPECT_EQ(h.quantile(0.11), 2.0);
  EXPECT_EQ(h.quantile(0.9), 2.0);
  EXPECT_TRUE(std::isinf(*h.quantile(0.91)));
  EXPECT_FALSE(histogram{}.quantile(0.5).has_value());
  histogram later = h;
  for (auto& b : later.buckets) b.below += b.bound >= 2 ? 10 : 0;
  const histogram between = later.since(h);
  EXPECT_EQ(between.count(), 10);
  EXPECT_EQ(between.quantile(0.01), 2.0);
  EXPECT_EQ(h.since(later).count(), 100);  // counts from zero again: another program
}

TEST(ToolFigures, NumbersForPeople) {
  EXPECT_EQ(duration(std::nullopt), "-");
  EXPECT_EQ(duration(512e-9), "512 ns");
  EXPECT_EQ(duration(1024e-9), "1.0 µs");
  EXPECT_EQ(duration(131e-6), "131 µs");
  EXPECT_EQ(duration(0.0099), "9.9 ms");
  EXPECT_EQ(duration(0.9999), "1.0 s");
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
}

// Against what the library says, so that no name is forgotten on either side.
TEST(ToolFigures, EveryNameIsThere) {
  const std::string said = debug::metrics();
  const std::string all = stats_table({}) + top_frame({}, {});
  for (const char* name :
       {"go_goroutines", "go_threads", "go_sched_gomaxprocs_threads",
        "go_sched_goroutines_created_goroutines_total", "weft_sched_switches_total",
        "weft_sched_syscalls_total", "weft_sched_leaked_goroutines",
        "go_sched_latencies_seconds_bucket", "go_sched_pauses_total_other_seconds_bucket",
        "weft_p_switches_total", "weft_p_queued_goroutines", "weft_p_running"})
    EXPECT_NE(said.find(name), std::string::npos) << name;
  EXPECT_NE(all.find("latency"), std::string::npos);
}

TEST(ToolTop, RatesAreOfTheInterval) {
  sample before, now;
  before.at = 10;
  now.at = 12;
  now.process.pid = 17;
  now.process.name = "x";
  now.process.cpu_seconds = 3;
  before.values = figures::parse("weft_sched_steals_total 100\nweft_p_switches_total{p=\"0\"} 5\n");
  now.values = figures::parse(
      "weft_sched_steals_total 2100\nweft_p_switches_total{p=\"0\"} 25\n"
      "weft_p_queued_goroutines{p=\"0\"} 3\nweft_p_running{p=\"0\"} 1\n");
  const std::string frame = top_frame(before, now);
  EXPECT_NE(frame.find("process 17 (x), CPU 150 %"), std::string::npos) << frame;
  EXPECT_NE(frame.find("steals               1,000             2,100\n"), std::string::npos)
      << frame;
  EXPECT_NE(frame.find("   0  running        3            10\n"), std::string::npos) << frame;
  // Cut to the terminal, between characters.
  const std::string small = top_frame(before, now, 2, 8);
  EXPECT_EQ(small, "weft top\n\n");
}

}  // namespace
}  // namespace weft::tool
