#include <aloni/core/error.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/model/shipped_machines.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace aloni::model {
namespace test_shipped_machines {

using Json = nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

TEST(ShippedMachines, AreFoundByTheNameInTheirFile) {
  EXPECT_THAT(machine_names(), testing::ElementsAre("a100_cluster", "h100_cluster", "lassen", "x86_server"));
  for (const std::string& name : machine_names()) EXPECT_EQ(find_machine(name).name, name);
}

TEST(ShippedMachines, AreNamedInTheErrorForAnUnknownName) {
  try {
    find_machine("lasen");
    FAIL() << "lasen was found";
  } catch (const InvalidArgument& e) {
    EXPECT_EQ(e.value(), "\"lasen\"");
    EXPECT_THAT(e.expectation(), AllOf(HasSubstr("x86_server"), HasSubstr("did you mean lassen?")));
  }
}

/// A machine balances arithmetic, memory and links within bounds that no processor since 2015 leaves.
TEST(ShippedMachines, HavePlausibleRatios) {
  for (const std::string& name : machine_names()) {
    SCOPED_TRACE(name);
    const Machine m = find_machine(name);
    const Processor& p = m.processor;
    EXPECT_EQ(m.ranks_per_node * m.threads_per_rank, p.cores_per_node);
    EXPECT_GT(p.float32_flops / p.core_bandwidth, 4);
    EXPECT_LT(p.float32_flops / p.core_bandwidth, 40);
    EXPECT_GE(p.float32_flops, 1.9 * p.float64_flops);
    EXPECT_GT(p.core_cache_bandwidth, p.core_bandwidth);
    EXPECT_LE(p.node_bandwidth, p.core_bandwidth * p.cores_per_node);
    const LinkCosts &self = m.link(LinkKind::self), &shared = m.link(LinkKind::shared_memory);
    const LinkCosts &within = m.link(LinkKind::within_node), &between = m.link(LinkKind::between_nodes);
    EXPECT_LE(self.latency, shared.latency);
    EXPECT_LE(shared.latency, within.latency);
    EXPECT_LT(within.latency, between.latency);
    EXPECT_LT(self.seconds_per_byte, shared.seconds_per_byte);
    EXPECT_LE(shared.seconds_per_byte, within.seconds_per_byte);
    // The ranks of a node share its interfaces.
    EXPECT_LT(within.seconds_per_byte, between.seconds_per_byte * m.ranks_per_node);
    EXPECT_NEAR(m.combine_seconds_per_byte * p.core_bandwidth, 3, 0.1);
    EXPECT_GT(m.memory_bytes, 1e9);
    EXPECT_EQ(m.planning.on_host, m.planning.onednn);
  }
}

/// 4.1 GFLOP forward for a sample of 224² in ResNet-50, three times that for a step: a device trains hundreds of
/// samples in a second. Public results: about 380 on a V100 in float32.
TEST(ShippedMachines, GiveTheKnownSpeedOfAConvolutionOnAV100) {
  const Machine lassen = find_machine("lassen");
  KernelCall call{.kind = KernelKind::convolution_forward};
  call.flops = 2 * 4.1e9 * 3 / 2;
  const double seconds = roofline_seconds(lassen, call, 4, 1);
  EXPECT_GT(1 / seconds, 380);
  EXPECT_LT(1 / seconds, 2000);
}

TEST(ShippedMachines, NameTheSourceOfEachGroupOfNumbers) {
  for (const std::string& name : machine_names()) {
    std::vector<std::string> parts;
    for (const Provenance& p : find_machine(name).provenance) {
      parts.push_back(p.part);
      EXPECT_GE(p.text.size(), 10U) << name << ": " << p.text;
    }
    for (const char* part : {"name", "ranks_per_node", "memory_bytes", "planning", "processor",
                             "processor.core_bandwidth", "processor.core_cache_bytes", "processor.kernel_seconds",
                             "processor.efficiency", "links.self", "links.shared_memory", "links.within_node",
                             "links.between_nodes", "combine_seconds_per_byte", "exchange_seconds"})
      EXPECT_THAT(parts, Contains(part)) << name;
  }
}

/// All numbers in `value` with their paths.
void add_numbers(const Json& value, const std::string& path, std::map<std::string, Json>& numbers) {
  if (value.is_number()) numbers[path] = value;
  if (!value.is_structured()) return;
  for (const auto& [name, inner] : value.items()) add_numbers(inner, path.empty() ? name : path + "." + name, numbers);
}
std::map<std::string, Json> numbers_of(const Machine& machine) {
  std::map<std::string, Json> numbers;
  add_numbers(Json::parse(to_json_text(machine)), "", numbers);
  numbers.erase("aloni_machine");  // the version of the format
  return numbers;
}

/// The path or a group that contains it.
bool covers(const std::string& part, const std::string& path) { return path == part || path.starts_with(part + "."); }

/// A group may speak for the defaults of the library and for numbers that are not known. Any other number has a source
/// of its own: the numbers of a link have different ones.
TEST(ShippedMachines, NameTheSourceOfEachNumber) {
  for (const std::string& name : machine_names()) {
    const Machine machine = find_machine(name);
    Machine usual = machine;
    usual.planning = {};
    const std::map<std::string, Json> numbers = numbers_of(machine), defaults = numbers_of(usual);
    EXPECT_GT(numbers.size(), 40U) << name;
    for (const auto& [path, value] : numbers) {
      const bool by_group = value == 0 || (covers("planning", path) && value == defaults.at(path));
      EXPECT_TRUE(std::ranges::any_of(
          machine.provenance, [&](const Provenance& p) { return by_group ? covers(p.part, path) : p.part == path; }))
          << name << ": no source of " << path << " = " << value;
    }
    for (const Provenance& p : machine.provenance) {
      EXPECT_EQ(p.text.find("assumed"), std::string::npos) << name << ", " << p.part << ": an estimate has a range";
      EXPECT_TRUE(p.part == "name" || p.part == "processor.efficiency" ||
                  std::ranges::any_of(numbers, [&](const auto& number) { return covers(p.part, number.first); }))
          << name << ": no field " << p.part;
    }
  }
}

TEST(ShippedMachines, AreWholeFilesThatCanBeWrittenAgain) {
  for (const std::string& name : machine_names())
    EXPECT_EQ(parse_machine(to_json_text(find_machine(name)), name), find_machine(name));
}

}  // namespace test_shipped_machines
}  // namespace aloni::model
