// The text of traces, and the offset between two clocks.
#include <aloni/core/comm/trace.hpp>
#include <aloni/core/trace.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace test_trace {

using aloni::Trace;
using aloni::comm::clock_offset;
using aloni::comm::ClockSample;

TEST(Trace, WritesNamesOfProcessAndRowsThenTheSlices) {
  Trace trace{.process = 1, .name = "rank 1", .rows = {"compute"}};
  trace.slices.push_back({0, "conv1", 2'001'500, 2'003'507, {{"flops", 12.5}, {"bytes", std::int64_t{-3}}}});
  EXPECT_EQ(aloni::trace_events(trace, 2'000'000),
            R"({"ph":"M","pid":1,"tid":2000,"name":"process_name","args":{"name":"rank 1"}},
{"ph":"M","pid":1,"tid":2000,"name":"process_sort_index","args":{"sort_index":1}},
{"ph":"M","pid":1,"tid":2000,"name":"thread_name","args":{"name":"compute"}},
{"ph":"M","pid":1,"tid":2000,"name":"thread_sort_index","args":{"sort_index":0}},
{"ph":"X","pid":1,"tid":2000,"ts":1.500,"dur":2.007,"name":"conv1","args":{"flops":12.5,"bytes":-3}})");
}

/// The text of one slice with this name and value.
std::string slice_of(const std::string& name, const aloni::TraceArgument& argument, std::int64_t start = 0) {
  const Trace trace{.process = 0, .name = "", .rows = {}, .slices = {{0, name, start, start, {argument}}}};
  const std::string text = aloni::trace_events(trace);
  return text.substr(text.find("\"ts\""));
}

TEST(Trace, EscapesTextThatJsonCannotHold) {
  EXPECT_EQ(slice_of("a\"b\\c", {"\n", std::string("\xff\u00e4\x01")}),
            R"("ts":0.000,"dur":0.000,"name":"a\"b\\c","args":{"\\n":"\\xff)"
            "\u00e4"
            R"(\\x01"}})");
}

TEST(Trace, WritesNullForNumbersThatAreNotFinite) {
  EXPECT_EQ(slice_of("x", {"v", std::numeric_limits<double>::infinity()}),
            R"("ts":0.000,"dur":0.000,"name":"x","args":{"v":null}})");
  EXPECT_EQ(slice_of("x", {"v", std::numeric_limits<double>::quiet_NaN()}, -1'002'003),
            R"("ts":-1002.003,"dur":0.000,"name":"x","args":{"v":null}})");
}

TEST(Trace, SortsSlicesByRowAndStartWithTheOuterOneFirst) {
  Trace trace{.process = 0, .name = "", .rows = {"a", "b"}};
  trace.slices = {{1, "later row", 0, 1}, {0, "inner", 5, 6}, {0, "outer", 5, 9}, {0, "first", 1, 2}};
  const std::string text = aloni::trace_events(trace);
  std::vector<std::size_t> places;
  for (const char* name : {"\"first\"", "\"outer\"", "\"inner\"", "\"later row\""}) places.push_back(text.find(name));
  EXPECT_TRUE(std::ranges::is_sorted(places)) << text;
  EXPECT_NE(places.back(), std::string::npos) << text;
}

TEST(Trace, JoinsTheEventsOfAllProcesses) {
  const std::vector<std::string> events{"{1}", "", "{2}"};
  const std::vector<aloni::TraceArgument> about{{"ranks", std::int64_t{3}}};
  EXPECT_EQ(aloni::trace_file(events, about),
            "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"ranks\":3},\"traceEvents\":[\n{1},\n{2}\n]}\n");
}

TEST(ClockOffset, ComesFromTheShortestRoundTrip) {
  // The other clock is 5000 ahead. The first answer was on its way for long, the second for 10 and 30.
  const std::vector<ClockSample> samples{{100, 5900, 1000}, {2000, 7010, 2040}, {3000, 8400, 3800}};
  EXPECT_EQ(clock_offset(samples), 4990);
  const std::vector<ClockSample> behind{{9000, 1020, 9040}};
  EXPECT_EQ(clock_offset(behind), -8000);
}

TEST(ClockOffset, IsZeroIfTheClocksAgreeWithinTheError) {
  const std::vector<ClockSample> samples{{100, 135, 140}};
  EXPECT_EQ(clock_offset(samples), 0);
}

}  // namespace test_trace
