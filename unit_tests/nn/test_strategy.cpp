#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/strategy.hpp>

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <support/temporary_folder.hpp>

namespace aloni::nn {
namespace test_strategy {

using testing::AllOf;
using testing::HasSubstr;
using views::ProcessGrid;

NetworkDescription lenet() { return lenet5({{1, 1, 28, 28, 1}}, 10); }

template <class Exception = InvalidArgument>
std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Exception& e) {
    return e.what();
  }
  return "not refused";
}

std::string parse_refusal(std::string_view text) {
  return refusal([&] { Strategy::parse(text, "a.strategy"); });
}

std::string resolve_refusal(std::string_view text, int ranks) {
  return refusal([&] { resolve(Strategy::parse(text, "a.strategy"), lenet(), ranks); });
}

TEST(Strategy, ParsesRulesCommentsAndBlankLines) {
  const auto s = Strategy::parse("# rows first\n\nconv*\th2w2  # both\r\n  pool?   h2\n*  n4", "a.strategy");
  EXPECT_EQ(s.source, "a.strategy");
  ASSERT_EQ(s.rules.size(), 3u);
  EXPECT_EQ(s.rules[0].pattern, "conv*");
  EXPECT_EQ(s.rules[0].split, ProcessGrid::parse("h2w2"));
  EXPECT_EQ(s.rules[0].line, 3);
  EXPECT_EQ(s.rules[1].pattern, "pool?");
  EXPECT_EQ(s.rules[1].line, 4);
  EXPECT_EQ(s.rules[2].split, ProcessGrid::parse("n4"));
  EXPECT_EQ(s.rules[2].line, 5);
}

TEST(Strategy, TextFormParsesToTheSameStrategy) {
  const auto s = Strategy::parse("conv1 h2\nfc* n2\n* 1\n", "a");
  const auto again = Strategy::parse(to_string(s), "b");
  ASSERT_EQ(again.rules.size(), s.rules.size());
  for (std::size_t i = 0; i < s.rules.size(); ++i) {
    EXPECT_EQ(again.rules[i].pattern, s.rules[i].pattern);
    EXPECT_EQ(again.rules[i].split, s.rules[i].split);
  }
}

TEST(Strategy, NamesSourceAndLineOfEveryParseError) {
  EXPECT_THAT(parse_refusal("* n2\n\nconv1"), AllOf(HasSubstr("a.strategy:3"), HasSubstr("\"conv1\"")));
  EXPECT_THAT(parse_refusal("conv1 h2 w2"), HasSubstr("a.strategy:1"));
  EXPECT_THAT(parse_refusal("conv1 q2"), AllOf(HasSubstr("a.strategy:1: grid"), HasSubstr("\"q2\"")));
  EXPECT_THAT(parse_refusal("conv1 h2h2"), HasSubstr("a.strategy:1: grid"));
  EXPECT_THAT(parse_refusal("conv1 h0"), HasSubstr("a.strategy:1: grid"));
  EXPECT_THAT(parse_refusal("conv1 h99999999999999999999"), HasSubstr("a.strategy:1: grid"));
  EXPECT_THAT(parse_refusal("conv[1] h2"), AllOf(HasSubstr("a.strategy:1: pattern"), HasSubstr("\"conv[1]\"")));
  EXPECT_THAT(parse_refusal(""), AllOf(HasSubstr("a.strategy"), HasSubstr("no rules")));
  EXPECT_THAT(parse_refusal("# nothing\n"), HasSubstr("no rules"));
}

TEST(Strategy, ErrorsStayOnOneLineForAnyFile) {
  const std::string binary(
      "\x7f"
      "ELF\0\1\2 \x1b[2J \xff\xfe",
      16);
  EXPECT_THAT(parse_refusal(binary), AllOf(HasSubstr("a.strategy:1"), Not(HasSubstr("\x1b")), Not(HasSubstr("\n"))));
  EXPECT_LT(parse_refusal(std::string(1000, 'x')).size(), 300u);
}

TEST(Strategy, FirstMatchingRuleCounts) {
  const auto grids = resolve(Strategy::parse("conv1 h2\nconv* w2\npool? h2\n*1 n2\n* 1", "a"), lenet(), 2);
  const auto net = lenet();
  const auto grid_of = [&](const char* layer) { return to_string(grids[find_layer(net, layer)]); };
  ASSERT_EQ(grids.size(), net.layers.size());
  EXPECT_EQ(grid_of("conv1"), "h2");
  EXPECT_EQ(grid_of("conv2"), "w2");
  EXPECT_EQ(grid_of("pool2"), "h2");
  EXPECT_EQ(grid_of("relu1"), "n2");
  EXPECT_EQ(grid_of("relu2"), "1");
}

TEST(Strategy, StarsMatchAnyNumberOfCharacters) {
  const auto one_of_twelve = [](const std::string& pattern) {
    const auto grids = resolve(Strategy::parse(pattern + " h2\n* 1", "a"), lenet(), 2);
    return std::count(grids.begin(), grids.end(), ProcessGrid::parse("h2"));
  };
  EXPECT_EQ(one_of_twelve("*"), 12);
  EXPECT_EQ(one_of_twelve("**"), 12);
  EXPECT_EQ(one_of_twelve("*o*"), 4);  // conv1, conv2, pool1, pool2
  EXPECT_EQ(one_of_twelve("*o*2"), 2);
  EXPECT_EQ(one_of_twelve("????"), 0);
  EXPECT_EQ(one_of_twelve("?????"), 8);
  EXPECT_EQ(one_of_twelve("f*n"), 1);
  EXPECT_EQ(one_of_twelve("*conv1*"), 1);
  EXPECT_EQ(one_of_twelve("conv1"), 1);
}

TEST(Strategy, UniformHasOneGridForAllLayers) {
  const auto grids = resolve(Strategy::uniform(ProcessGrid::parse("n2h2")), lenet(), 8);
  EXPECT_EQ(grids, std::vector<LayerSplit>(12, ProcessGrid::parse("n2h2")));
  EXPECT_EQ(Strategy::uniform(ProcessGrid::parse("n2h2")).source, "n2h2");
}

TEST(Strategy, ResolveNamesUnknownLayersWithTheirLine) {
  EXPECT_THAT(resolve_refusal("* h2\nconv9 h2", 2),
              AllOf(HasSubstr("a.strategy:2"), HasSubstr("\"conv9\""), HasSubstr("conv1"), HasSubstr("fc3")));
  EXPECT_EQ(resolve_refusal("bn* h2\n* h2", 2), "not refused");
}

TEST(Strategy, ResolveNamesTheLayerThatNoRuleMatches) {
  EXPECT_THAT(resolve_refusal("conv* h2\nrelu* h2", 2), AllOf(HasSubstr("\"pool1\""), HasSubstr("every layer")));
}

TEST(Strategy, ResolveRefusesGridsThatDoNotFitTheRanks) {
  EXPECT_THAT(resolve_refusal("* h4", 2), AllOf(HasSubstr("a.strategy:1: grid = h4"), HasSubstr("at most 2")));
  EXPECT_THAT(resolve_refusal("* h2", 3),
              AllOf(HasSubstr("a.strategy:1: grid = h2"), HasSubstr("divides the 3 ranks")));
  EXPECT_EQ(resolve_refusal("* h2", 4), "not refused");
  EXPECT_EQ(resolve_refusal("* 1", 3), "not refused");
  EXPECT_EQ(resolve_refusal("* h3", 3), "not refused");
  ProcessGrid huge;
  huge.blocks = {1 << 30, 1 << 30, 1 << 30, 1 << 30, 1};
  EXPECT_NE(refusal([&] { resolve(Strategy{"x", {{"*", huge, 1}}}, lenet(), 2); }), "not refused");
  ProcessGrid none;
  none.blocks = {0, 1, 1, 1, 1};
  EXPECT_THAT(refusal([&] {
                resolve(Strategy{"x", {{"*", none, 1}}}, lenet(), 2);
              }),
              HasSubstr("blocks in sample = 0"));
}

TEST(Strategy, ResolveNamesTheNearestGridsAndRanks) {
  EXPECT_THAT(resolve_refusal("* h3", 4), HasSubstr("divides the 4 ranks: h2 or h4, or 3 or 6 ranks for h3"));
  EXPECT_THAT(resolve_refusal("* h3", 7), HasSubstr(": h7, or 6 or 9 ranks for h3"));
  EXPECT_THAT(resolve_refusal("* n4h3", 8), HasSubstr(": n4h2, or 12 ranks for n4h3"));
  EXPECT_THAT(resolve_refusal("* h2f3", 8), HasSubstr(": h2f2 or h2f4, or 6 or 12 ranks for h2f3"));
  EXPECT_THAT(resolve_refusal("* h4", 2), HasSubstr("one per rank: h2, or 4 ranks for h4"));
  EXPECT_THAT(resolve_refusal("* h3w3", 4), HasSubstr("one per rank: 9 ranks for h3w3"));
}

TEST(Strategy, ResolveRefusesDimensionsThatTheNetworkDoesNotHave) {
  EXPECT_THAT(resolve_refusal("* d2", 2), AllOf(HasSubstr("grid = d2"), HasSubstr("no 'd'")));
}

TEST(Strategy, CountsBlocksOfFiltersAmongTheRanks) {
  EXPECT_EQ(resolve_refusal("* c2f2", 4), "not refused");
  EXPECT_THAT(resolve_refusal("* c2f2", 2), AllOf(HasSubstr("grid = c2f2"), HasSubstr("at most 2")));
  EXPECT_THAT(resolve_refusal("* f2", 3), AllOf(HasSubstr("grid = f2"), HasSubstr("divides the 3 ranks")));
  EXPECT_THAT(refusal([] { resolve(Strategy::uniform(LayerSplit(ProcessGrid{}, 0)), lenet(), 2); }),
              HasSubstr("blocks of filters = 0"));
}

TEST(Strategy, ParsesBlocksOfFiltersAndTheOverlap) {
  const auto s = Strategy::parse("conv1 n2f3c2 blocking\nconv2 f4 interior_first\n* f1h2", "a");
  EXPECT_EQ(s.rules[0].split, LayerSplit(ProcessGrid::parse("n2c2"), 3, Overlap::blocking));
  EXPECT_EQ(s.rules[0].split.size(), 12);
  EXPECT_EQ(to_string(s.rules[0].split.tensor_grid()), "n2c6");
  EXPECT_EQ(s.rules[1].split, LayerSplit(ProcessGrid{}, 4));
  EXPECT_EQ(s.rules[2].split, LayerSplit(ProcessGrid::parse("h2")));
  const auto again = Strategy::parse(to_string(s), "b");
  for (std::size_t i = 0; i < s.rules.size(); ++i) EXPECT_EQ(again.rules[i].split, s.rules[i].split);
  for (const char* text : {"f", "f0", "f-1", "f2f2", "h2f", "1f2", "f99999999999", "f2x1", "h1073741824f2", ""})
    EXPECT_NE(refusal([&] { LayerSplit::parse(text); }), "not refused") << text;
  EXPECT_THAT(parse_refusal("* f2 later"), AllOf(HasSubstr("a.strategy:1: overlap"), HasSubstr("interior_first")));
  EXPECT_THAT(parse_refusal("* h2 wide"), AllOf(HasSubstr("a.strategy:1: overlap"), HasSubstr("recompute_halo")));
  EXPECT_EQ(Strategy::parse("* h2 recompute_halo", "a").rules[0].split.overlap, Overlap::recompute_halo);
}

TEST(Strategy, RefusesRecomputeHaloForLayersWithStatisticsOrSplitChannels) {
  EXPECT_EQ(resolve_refusal("* h2 recompute_halo", 2), "not refused");
  EXPECT_THAT(resolve_refusal("* h2c2 recompute_halo", 4),
              AllOf(HasSubstr("overlap of layer \"conv1\""), HasSubstr("channels")));
  EXPECT_THAT(resolve_refusal("* h2f2 recompute_halo", 4),
              AllOf(HasSubstr("overlap of layer \"conv1\""), HasSubstr("filters")));
  auto net = lenet();
  const LayerSplit by_features(ProcessGrid{}, 2, Overlap::recompute_halo);
  const int dense = find_layer(net, "fc1");
  EXPECT_THAT(supports(net, dense, by_features, 2).reason, AllOf(HasSubstr("\"fc1\""), HasSubstr("filters")));
  net.layers.insert(net.layers.begin() + 1, {"norm", BatchNorm{}, {"conv1"}});
  const LayerSplit recomputing(ProcessGrid::parse("h2"), 1, Overlap::recompute_halo);
  EXPECT_THAT(supports(net, 1, recomputing, 2).reason, AllOf(HasSubstr("\"norm\""), HasSubstr("statistics")));
  EXPECT_THAT(refusal([&] { resolve(Strategy::uniform(recomputing), net, 2); }),
              AllOf(HasSubstr("\"norm\""), HasSubstr("interior_first or blocking")));
}

TEST(Strategy, SupportsGivesTheReasonForARefusedSplit) {
  const auto net = lenet();
  EXPECT_TRUE(supports(net, 0, LayerSplit::parse("h2c2f2"), 16));
  EXPECT_TRUE(supports(net, 0, LayerSplit::parse("h64"), 64));
  EXPECT_THAT(supports(net, 0, LayerSplit::parse("h2f2"), 2).reason,
              AllOf(HasSubstr("\"conv1\""), HasSubstr("h2f2"), HasSubstr("at most 2")));
  EXPECT_THAT(supports(net, 0, LayerSplit::parse("d2"), 2).reason, HasSubstr("no 'd'"));
}

TEST(Strategy, ReadsAFile) {
  const aloni::test::TemporaryFolder folder;
  const auto path = folder.path("lenet.strategy");
  std::ofstream(path) << "conv* h2\n* n2\n";
  EXPECT_EQ(Strategy::read(path).rules.size(), 2u);
  EXPECT_EQ(Strategy::read(path).source, path);
}

TEST(Strategy, ReadRefusesOtherFiles) {
  const aloni::test::TemporaryFolder folder;
  const auto read = [&](const std::string& path) { return refusal<FileError>([&] { Strategy::read(path); }); };
  EXPECT_THAT(read(folder.path("none")), AllOf(HasSubstr(folder.path("none")), HasSubstr("missing")));
  EXPECT_THAT(read(folder.path("")), HasSubstr("a folder"));
  const auto long_file = folder.path("long");
  std::ofstream(long_file) << std::string(std::size_t{2} << 20, '#');
  EXPECT_THAT(read(long_file), HasSubstr("longer than 1 MiB"));
}

}  // namespace test_strategy
}  // namespace aloni::nn
