#include "every_field.hpp"

#include <aloni/core/error.hpp>
#include <aloni/model/machine_file.hpp>

#include <support/temporary_folder.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace aloni::model {
namespace test_machine_file {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

Json json_of_machine() { return Json::parse(to_json_text(aloni::test::machine_with_every_field())); }

/// The error for a text; all fields empty if it is accepted.
struct Fault {
  std::string argument, value, expectation;
};
Fault fault_of_text(const std::string& text) {
  try {
    parse_machine(text, "m.json");
  } catch (const InvalidArgument& e) {
    return {e.argument(), e.value(), e.expectation()};
  }
  return {};
}

/// "/links/self" as "links.self", "/kernels/0" as "kernels[0]".
std::string dotted(const Json::json_pointer& place) {
  std::string path;
  for (auto at = place; !at.empty(); at = at.parent_pointer()) {
    const std::string& name = at.back();
    const bool is_position = name.find_first_not_of("0123456789") == std::string::npos;
    path = (is_position ? "[" + name + "]" : "." + name) + path;
  }
  return path.substr(1);
}

/// All places but those inside lists of numbers.
void add_places(const Json& json, const Json::json_pointer& place, std::vector<Json::json_pointer>& places) {
  if (!place.empty()) places.push_back(place);
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) add_places(value, place / name, places);
  } else if (json.is_array() && !json.empty() && json.front().is_object()) {
    for (std::size_t i = 0; i < json.size(); ++i) add_places(json[i], place / i, places);
  }
}
std::vector<Json::json_pointer> places_of(const Json& json) {
  std::vector<Json::json_pointer> places;
  add_places(json, Json::json_pointer(), places);
  return places;
}

TEST(MachineFile, GivesBackEveryFieldExactly) {
  const Machine machine = aloni::test::machine_with_every_field();
  const std::string text = to_json_text(machine);
  EXPECT_EQ(parse_machine(text, "again"), machine);
  EXPECT_EQ(to_json_text(parse_machine(text, "again")), text);
  EXPECT_EQ(parse_machine(to_json_text(generic_machine()), "generic"), generic_machine());
}

TEST(MachineFile, HasAnotherFingerprintForEachOtherValue) {
  const Json json = json_of_machine();
  const std::uint64_t expected = fingerprint(parse_machine(json.dump(), "m"));
  EXPECT_EQ(fingerprint(aloni::test::machine_with_every_field()), expected);
  int changes = 0;
  for (const Json::json_pointer& place : places_of(json)) {
    Json changed = json;
    Json& value = changed[place].is_array() && !changed[place].empty() ? changed[place].front() : changed[place];
    if (value.is_boolean()) value = !value.get<bool>();
    if (value.is_number_float()) value = value.get<double>() * 0.9999;
    if (value.is_number_integer()) value = value.get<std::int64_t>() - 1;
    const bool is_version = place.back() == "aloni_machine";  // an earlier one may have the same fields
    if (is_version || changed == json || !fault_of_text(changed.dump()).argument.empty()) continue;
    EXPECT_NE(fingerprint(parse_machine(changed.dump(), "m")), expected) << dotted(place);
    ++changes;
  }
  EXPECT_GT(changes, 90);
  Machine renamed = aloni::test::machine_with_every_field();
  renamed.name += 'x';
  EXPECT_NE(fingerprint(renamed), expected);
}

TEST(MachineFile, HasEveryFieldOfAMachineDescriptionButThoseItDerives) {
  std::vector<std::string> expected, found;
  for (const MachineField& field : fields_of({}))
    if (field.name != "tuning" && field.name != "convolutions" && !field.name.ends_with("per_copied_byte"))
      expected.emplace_back(field.name);
  const Json json = json_of_machine();
  for (const auto& [name, value] : json["planning"].items()) found.push_back(name);
  EXPECT_EQ(found, expected);
}

TEST(MachineFile, HasEachFieldInItsDocument) {
  std::ifstream file(ALONI_MACHINES_DOCUMENT);
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  ASSERT_THAT(document, HasSubstr("# Machines"));
  const Json json = json_of_machine();
  for (const Json::json_pointer& place : places_of(json)) {
    const std::string name = place.back();
    if (name.find_first_not_of("0123456789") == std::string::npos) continue;
    EXPECT_THAT(document, HasSubstr('`' + name + '`')) << "docs/machines.md lacks " << dotted(place);
  }
  for (int k = 0; k < kernel_kinds; ++k) {
    const std::string kind(name(static_cast<KernelKind>(k)));
    EXPECT_THAT(document, HasSubstr('`' + kind + '`'));
  }
}

TEST(MachineFile, KeepsTheOrderOfTheFieldsAndPutsSmallObjectsOnOneLine) {
  const std::string text = to_json_text(generic_machine());
  EXPECT_THAT(text, HasSubstr("{\n  \"aloni_machine\": 12,\n  \"name\": \"generic\",\n  \"provenance\": ["));
  EXPECT_THAT(text, HasSubstr("    \"self\": {\"latency\":0.0,"));
  EXPECT_THAT(text, EndsWith("  \"learned\": []\n}\n"));
}

TEST(MachineFile, RefusesEveryFieldThatIsMissingAndNamesItsPath) {
  const Json json = json_of_machine();
  int refused = 0;
  for (const Json::json_pointer& place : places_of(json)) {
    const std::string path = dotted(place);
    const std::string object = place.parent_pointer().empty() ? "" : place.parent_pointer().back();
    if (json[place.parent_pointer()].is_array() || object == "efficiency") continue;
    Json without = json;
    without[place.parent_pointer()].erase(place.back());
    const Fault fault = fault_of_text(without.dump());
    EXPECT_EQ(fault.argument, place.back() == "aloni_machine" ? "m.json: aloni_machine" : "m.json: " + path);
    EXPECT_EQ(fault.value, "missing") << path;
    ++refused;
  }
  EXPECT_GT(refused, 90);
}

TEST(MachineFile, RefusesEveryFieldOfAnotherType) {
  const Json json = json_of_machine();
  for (const Json::json_pointer& place : places_of(json)) {
    for (const Json& wrong : {Json(nullptr), Json("text"), Json(Json::array({"a"})), Json(true), Json(-1.5)}) {
      if (json[place].type() == wrong.type() || (json[place].is_number() && wrong.is_number())) continue;
      Json changed = json;
      changed[place] = wrong;
      const Fault fault = fault_of_text(changed.dump());
      EXPECT_THAT(fault.argument, HasSubstr(dotted(place))) << wrong;
    }
  }
}

TEST(MachineFile, RefusesEveryNumberThatIsNegativeOrAbsurdlyLarge) {
  const Json json = json_of_machine();
  for (const Json::json_pointer& place : places_of(json)) {
    if (!json[place].is_number()) continue;
    const std::string path = dotted(place);
    for (const Json& wrong : {Json(-1), Json(-1e-9), Json(1e301), Json(18446744073709551615ULL)}) {
      if (path == "learned[0].seconds_mean" && wrong > -1000 && wrong < 0) continue;  // a logarithm
      Json changed = json;
      changed[place] = wrong;
      const Fault fault = fault_of_text(changed.dump());
      EXPECT_EQ(fault.argument, "m.json: " + path) << wrong;
      EXPECT_THAT(fault.expectation, HasSubstr(path == "aloni_machine" ? "12, " : " from "));
    }
  }
}

TEST(MachineFile, RefusesAnUnknownFieldInEveryObjectAndNamesTheNearestOne) {
  const Json json = json_of_machine();
  for (Json::json_pointer place : places_of(json)) {
    if (!json[place].is_object() || json[place].empty()) continue;
    const std::string name = json[place].items().begin().key();
    Json changed = json;
    changed[place][name + "_"] = 1;
    const Fault fault = fault_of_text(changed.dump());
    EXPECT_EQ(fault.argument, "m.json: " + dotted(place) + "." + name + "_");
    EXPECT_THAT(fault.expectation, AllOf(HasSubstr("one of: "), HasSubstr("did you mean " + name + "?")));
  }
  Json changed = json;
  changed["nmae"] = "a";
  EXPECT_EQ(fault_of_text(changed.dump()).argument, "m.json: nmae");
}

TEST(MachineFile, NamesTheBoundsAndTheUnitOfAnAbsurdValue) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"/links/between_nodes/latency", "a number of seconds from 0 to 10"},
      {"/links/between_nodes/seconds_per_byte",
       "a number of seconds per byte from 1e-16 to 0.001, or 0 for \"not known\""},
      {"/processor/core_bandwidth", "a number of bytes per second from 1000 to 1e+16"},
      {"/processor/cores_per_node", "an integer from 1 to 1e+06"},
      {"/memory_bytes", "a number of bytes from 1.04858e+06 to 1e+16, or 0 for \"not known\""}};
  for (const auto& [place, expectation] : cases) {
    Json json = json_of_machine();
    json[Json::json_pointer(place)] = 1e17;
    EXPECT_EQ(fault_of_text(json.dump()).expectation, expectation);
    EXPECT_EQ(fault_of_text(json.dump()).value, "1e+17");
  }
}

TEST(MachineFile, AcceptsTheValuesAtTheBounds) {
  for (const auto& [place, value] :
       {std::pair("/links/self/latency", 10.0), std::pair("/links/self/seconds_per_byte", 0.0),
        std::pair("/links/self/seconds_per_byte", 1e-16), std::pair("/processor/core_bandwidth", 1e3),
        std::pair("/processor/efficiency/dense", 1.0), std::pair("/memory_bytes", 0.0)}) {
    Json json = json_of_machine();
    json[Json::json_pointer(place)] = value;
    EXPECT_EQ(fault_of_text(json.dump()).argument, "") << place;
  }
}

TEST(MachineFile, RefusesAnIntegerWithAFraction) {
  Json json = json_of_machine();
  json["ranks_per_node"] = 1.5;
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: ranks_per_node");
}

TEST(MachineFile, RefusesAnotherVersionAndATextThatIsNoJson) {
  Json json = json_of_machine();
  json["aloni_machine"] = 1;
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: aloni_machine");
  EXPECT_EQ(fault_of_text(json.dump()).value, "1");
  for (const char* text : {"", "{", "aloni tuning 2\nranks 4\n", "{\"a\": 1e999}", "\xff"}) {
    const Fault fault = fault_of_text(text);
    EXPECT_EQ(fault.argument, "m.json");
    EXPECT_THAT(fault.expectation, HasSubstr("docs/machines.md"));
  }
  EXPECT_EQ(fault_of_text("[1]").expectation, "an object {…}");
}

/// What versions before 8 lack.
void as_in_version_7(Json& json, Machine& expected) {
  for (const char* const later : {"consolidate_below", "product_bytes"}) json["planning"].erase(later);
  expected.planning.consolidate_below = default_consolidate_below;
  expected.planning.product_bytes = MachineDescription{}.product_bytes;
  expected.kernels.clear();
  expected.learned.clear();
}

TEST(MachineFile, ReadsTheVersionWithoutMeasuredConvolutions) {
  Json json = json_of_machine();
  json["aloni_machine"] = 2;
  json.erase("convolutions");
  json.erase("transfers");
  json["planning"].erase("compute_capability");
  json["processor"].erase("float16_flops");
  Machine expected = aloni::test::machine_with_every_field();
  as_in_version_7(json, expected);
  expected.convolutions.clear();
  expected.transfers.clear();
  expected.planning.compute_capability = 0;
  expected.processor.float16_flops = 0;
  EXPECT_EQ(parse_machine(json.dump(), "old"), expected);
  json["kernels"].erase(0);
  json.erase("kernels");
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: kernels");
}

TEST(MachineFile, ReadsTheVersionWithoutConstantsOfTransfers) {
  Json json = json_of_machine();
  json["aloni_machine"] = 3;
  json.erase("transfers");
  json["processor"].erase("float16_flops");
  Machine expected = aloni::test::machine_with_every_field();
  as_in_version_7(json, expected);
  expected.transfers.clear();
  expected.processor.float16_flops = 0;
  EXPECT_EQ(parse_machine(json.dump(), "old"), expected);
  json.erase("convolutions");  // that version had them
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: convolutions");
}

TEST(MachineFile, ReadsTheVersionWithoutTheRateOfFloat16) {
  Json json = json_of_machine();
  json["aloni_machine"] = 4;
  json["processor"].erase("float16_flops");
  Machine expected = aloni::test::machine_with_every_field();
  as_in_version_7(json, expected);
  expected.processor.float16_flops = 0;
  EXPECT_EQ(parse_machine(json.dump(), "old"), expected);
  json.erase("transfers");  // that version had them
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: transfers");
}

TEST(MachineFile, ReadsTheVersionWithoutTheBandwidthToTheHost) {
  Json json = json_of_machine();
  json["aloni_machine"] = 6;
  json["processor"].erase("host_bandwidth");
  Machine expected = aloni::test::machine_with_every_field();
  as_in_version_7(json, expected);
  expected.processor.host_bandwidth = 0;
  EXPECT_EQ(parse_machine(json.dump(), "old"), expected);
  json["processor"].erase("float16_flops");  // that version had it
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: processor.float16_flops");
}

TEST(MachineFile, LeavesOutKernelsThatWereMeasuredAloneAndModelsOfOtherFeatures) {
  Json json = json_of_machine();
  json["aloni_machine"] = 7;
  json["planning"].erase("product_bytes");
  const Machine machine = parse_machine(json.dump(), "old");
  EXPECT_TRUE(machine.learned.empty());
  EXPECT_EQ(machine.planning.product_bytes, MachineDescription{}.product_bytes);
  json["aloni_machine"] = 8;
  json["planning"]["product_bytes"] = 1;
  const Machine later = parse_machine(json.dump(), "old");
  EXPECT_TRUE(later.learned.empty());
  EXPECT_EQ(later.planning.product_bytes, 1);
  json["aloni_machine"] = 9;
  json["kernels"][1]["seconds_alone"] = json["kernels"][1]["seconds_in_steps"] = {{"dense", 0.5}};
  Machine expected = aloni::test::machine_with_every_field();
  expected.planning.product_bytes = 1;
  expected.kernels.clear();
  expected.learned.clear();
  EXPECT_EQ(parse_machine(json.dump(), "old"), expected);
  json["aloni_machine"] = 10;
  for (const char* const old : {"seconds_alone", "seconds_in_steps"}) json["kernels"][1].erase(old);
  expected.kernels = aloni::test::machine_with_every_field().kernels;
  EXPECT_EQ(parse_machine(json.dump(), "old"), expected);
  json["aloni_machine"] = 11;
  json["planning"].erase("consolidate_below");
  expected.planning.consolidate_below = default_consolidate_below;
  expected.learned = aloni::test::machine_with_every_field().learned;
  EXPECT_EQ(parse_machine(json.dump(), "old"), expected);
  json["aloni_machine"] = machine_file_version;
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: planning.consolidate_below");
  json["planning"]["consolidate_below"] = 0;
  json["learned"][0]["mean"].erase(0);
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: learned[0].mean");
}

TEST(MachineFile, RefusesConstantsOfTransfersThatCannotBe) {
  const auto place_of = [](int fit, const auto& change) {
    Json json = json_of_machine();
    change(json["transfers"][fit]);
    return fault_of_text(json.dump()).argument;
  };
  EXPECT_EQ(place_of(0, [](Json& fit) { fit["method"] = "post"; }), "m.json: transfers[0].method");
  EXPECT_EQ(place_of(0, [](Json& fit) { fit["link"] = "self"; }), "m.json: transfers[0].link");
  EXPECT_EQ(place_of(0, [](Json& fit) { fit["link"] = "shared_memory"; }), "m.json: transfers[0].link");
  EXPECT_EQ(place_of(0, [](Json& fit) { fit["link"] = "between_nodes"; }), "m.json: transfers[0].shared_data");
  EXPECT_EQ(place_of(1, [](Json& fit) { fit["link"] = "within_node"; }), "m.json: transfers[1].link");
  EXPECT_EQ(place_of(1, [](Json& fit) { fit["shared_data"] = true; }), "m.json: transfers[1].shared_data");
  EXPECT_EQ(place_of(0, [](Json& fit) { fit["rates"] = Json::array(); }), "m.json: transfers[0].rates");
  EXPECT_EQ(place_of(0, [](Json& fit) { fit["rates"][1]["bytes"] = 256; }), "m.json: transfers[0].rates[1].bytes");
  Json json = json_of_machine();
  json["transfers"].push_back(json["transfers"][1]);
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: transfers[2]");
}

TEST(MachineFile, NamesADamagedConvolution) {
  const std::string problems = "m.json: convolutions[1].problems";
  const auto fault_with = [](const auto& change) {
    Json json = json_of_machine();
    change(json["convolutions"][1]["problems"]);
    return fault_of_text(json.dump());
  };
  const auto text_of = [](Json& problem) -> Json& { return problem["problem"]; };
  const auto sideways = fault_with([&](Json& all) { text_of(all[0]) = "sideways float32"; });
  EXPECT_EQ(sideways.argument, problems);
  EXPECT_EQ(sideways.value, "sideways float32");
  EXPECT_THAT(sideways.expectation, HasSubstr("cudnn engine 3"));
  const auto kernel = fault_with([&](Json& all) {
    std::string text = text_of(all[0]);
    text.replace(text.find("kernel (1"), 9, "kernel (0");
    text_of(all[0]) = text;
  });
  EXPECT_THAT(kernel.value, HasSubstr("kernel (0,"));
  EXPECT_EQ(fault_with([&](Json& all) { all[0]["times"] = Json::array(); }).argument, problems);
  EXPECT_THAT(fault_with([&](Json& all) { all[0]["times"][0]["implementation"] = "automatic"; }).value,
              EndsWith(": automatic"));
  EXPECT_THAT(fault_with([&](Json& all) { all[0]["times"].push_back(all[0]["times"][0]); }).value,
              EndsWith(": cudnn engine 3"));
  EXPECT_EQ(fault_with([&](Json& all) { all.push_back(all[0]); }).argument, problems + "[2].problem");
  EXPECT_EQ(fault_with([&](Json& all) { all[1]["times"][0]["seconds"] = 0; }).argument,
            problems + "[1].times[0].seconds");
}

/// Random tables of convolutions come back from a file as they were.
TEST(MachineFile, GivesBackRandomConvolutions) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto dice = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    Machine machine = generic_machine();
    for (int t = dice(0, 3); t > 0; --t) {
      MeasuredImplementations::Times times;
      for (int n = dice(0, 30); n > 0; --n) {
        nn::local::ConvolutionCase c{.pass = static_cast<nn::local::ConvolutionPass>(dice(0, 2)),
                                     .type = static_cast<nn::ElementType>(dice(0, 2)),
                                     .input_gaps = dice(0, 1) == 1};
        c.problem = {.samples = dice(1, 64), .channels = 4 * dice(1, 64), .filters = 4 * dice(1, 64)};
        c.problem.groups = dice(0, 3) == 0 ? 4 : 1;
        c.problem.offset = {0, dice(-3, 3), dice(-3, 3)};
        auto& all = times[numbers_of(c)];
        for (const char* name : {"direct", "onednn", "cudnn", "cudnn engine 12"})
          if (all.empty() || dice(0, 1) == 1)
            all.push_back({name, std::uniform_real_distribution(1e-9, 1e-2)(random), 0.01 * dice(0, 9), dice(1, 99),
                           dice(0, 1 << 30)});
      }
      machine.convolutions.push_back({.ranks_per_node = t,
                                      .threads_per_rank = dice(1, 9),
                                      .measured = MeasuredImplementations(std::move(times), dice(0, 1 << 30))});
    }
    EXPECT_EQ(parse_machine(to_json_text(machine), "again"), machine);
  }
}

TEST(MachineFile, ADescriptionHasTheTableOfItsProcesses) {
  Machine machine = generic_machine();
  machine.ranks_per_node = 4;
  const auto measured = [](Index marker) { return MeasuredImplementations({}, marker); };
  machine.convolutions = {
      {.ranks_per_node = 1, .threads_per_rank = 1, .measured = measured(11)},
      {.ranks_per_node = 4, .threads_per_rank = 1, .measured = measured(41)},
      {.ranks_per_node = 4, .threads_per_rank = 2, .measured = measured(42)},
      {.ranks_per_node = 4, .threads_per_rank = 1, .compute_capability = 90, .measured = measured(49)}};
  const auto marker = [&](int ranks) { return description_of(machine, ranks).convolutions.most_workspace_bytes(); };
  EXPECT_EQ(marker(1), 11);
  EXPECT_EQ(marker(2), 11);  // one rank less, not two more
  EXPECT_EQ(marker(3), 41);
  EXPECT_EQ(marker(16), 41);
  machine.threads_per_rank = 2;
  EXPECT_EQ(marker(1), 42);
  machine.threads_per_rank = 3;
  EXPECT_EQ(marker(4), 0);
  machine.threads_per_rank = 1;
  machine.planning.compute_capability = 90;
  EXPECT_EQ(marker(4), 49);
}

TEST(MachineFile, RefusesAFieldThatComesTwice) {
  std::string text = to_json_text(generic_machine());
  text.insert(text.find("\"most_nodes\""), "\"most_nodes\": 3, ");
  EXPECT_EQ(fault_of_text(text).argument, "m.json: most_nodes");
  EXPECT_EQ(fault_of_text(text).value, "twice");
}

TEST(MachineFile, RefusesDeepListsWithoutADeepStack) {
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  EXPECT_EQ(fault_of_text("{\"aloni_machine\": " + deep + "}").argument, "m.json");
}

TEST(MachineFile, RefusesUnknownNamesOfKindsTypesAndAlgorithms) {
  for (const auto& [place, wrong, meant] :
       {std::tuple("/learned/0/kind", "pointwize", "pointwise"), std::tuple("/learned/0/type", "float46", "float64"),
        std::tuple("/all_reduces/0/measurements/0/algorithm", "rinf", "ring")}) {
    Json json = json_of_machine();
    json[Json::json_pointer(place)] = wrong;
    const Fault fault = fault_of_text(json.dump());
    EXPECT_EQ(fault.argument, "m.json: " + dotted(Json::json_pointer(place)));
    EXPECT_THAT(fault.expectation, HasSubstr(std::string("did you mean ") + meant + "?"));
  }
  Json json = json_of_machine();
  json["processor"]["efficiency"]["densely"] = 0.5;
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: processor.efficiency.densely");
}

TEST(MachineFile, RefusesNumbersOfWeightsThatDoNotFitTheLayers) {
  const auto fault_with = [](const auto& change) {
    Json json = json_of_machine();
    change(json["learned"][0]);
    return fault_of_text(json.dump()).argument;
  };
  for (const char* name : {"mean", "deviation", "least", "largest"})
    EXPECT_EQ(fault_with([&](Json& learned) { learned[name].push_back(1); }),
              std::string("m.json: learned[0].") + name);
  for (const char* name : {"weights", "biases"}) {
    EXPECT_EQ(fault_with([&](Json& learned) { learned["networks"][1]["layers"][1][name].push_back(1); }),
              std::string("m.json: learned[0].networks[1].layers[1].") + name);
  }
  EXPECT_EQ(fault_with([](Json& learned) { learned["networks"][1]["layers"][0]["inputs"] = 1; }),
            "m.json: learned[0].networks[1].layers[0].inputs");
  EXPECT_EQ(fault_with([](Json& learned) { learned["networks"][1]["layers"].erase(0); }),
            "m.json: learned[0].networks[1].layers[0].inputs");
  EXPECT_EQ(fault_with([](Json& learned) { learned["networks"][1]["layers"].erase(1); }),
            "m.json: learned[0].networks[1].layers[0].outputs");
  EXPECT_EQ(fault_with([](Json& learned) { learned["networks"][1]["layers"] = Json::array(); }),
            "m.json: learned[0].networks[1].layers");
  EXPECT_EQ(fault_with([](Json& learned) { learned["mean"][1] = "a"; }), "m.json: learned[0].mean[1]");
  EXPECT_EQ(fault_with([](Json& learned) { learned["networks"][1]["layers"][1]["weights"][1] = 1e39; }),
            "m.json: learned[0].networks[1].layers[1].weights[1]");
  EXPECT_EQ(fault_with([](Json& learned) { learned["deviation"][0] = 0; }), "m.json: learned[0].deviation[0]");
}

TEST(MachineFile, RefusesTwoTablesForTheSameProcesses) {
  for (const auto& [list, member] :
       {std::pair("all_reduces", "ranks"), std::pair("collectives", "ranks"), std::pair("kernels", "ranks_per_node"),
        std::pair("convolutions", "ranks_per_node"), std::pair("learned", "ranks_per_node")}) {
    Json json = json_of_machine();
    const std::size_t size = json[list].size();
    json[list].push_back(json[list][0]);
    const Fault fault = fault_of_text(json.dump());
    EXPECT_EQ(fault.argument, std::string("m.json: ") + list + "[" + std::to_string(size) + "]");
    json[list][size][member] = 99;
    EXPECT_EQ(fault_of_text(json.dump()).argument, "") << list;
  }
  Json json = json_of_machine();
  json["kernels"][1]["times"].push_back(json["kernels"][1]["times"][0]);
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: kernels[1].times[2].kernel");
  json = json_of_machine();
  json["all_reduces"][0]["nodes"] = 5;
  EXPECT_EQ(fault_of_text(json.dump()).argument, "m.json: all_reduces[0].nodes");
}

TEST(MachineFile, RefusesConstantsOfCollectivesThatCannotBe) {
  const auto place_of = [](const auto& change) {
    Json json = json_of_machine();
    change(json["collectives"][0]);
    return fault_of_text(json.dump()).argument;
  };
  EXPECT_EQ(place_of([](Json&) {}), "");
  EXPECT_EQ(place_of([](Json& fit) { fit["method"] = "pairwise"; }), "m.json: collectives[0].method");
  EXPECT_EQ(place_of([](Json& fit) { fit["method"] = "chain"; }), "m.json: collectives[0].method");
  EXPECT_EQ(place_of([](Json& fit) { fit["operation"] = "barrier"; }), "m.json: collectives[0].operation");
  EXPECT_EQ(place_of([](Json& fit) { fit["nodes"] = 5; }), "m.json: collectives[0].nodes");
  EXPECT_EQ(place_of([](Json& fit) { fit["rates"] = Json::array(); }), "m.json: collectives[0].rates");
  EXPECT_EQ(place_of([](Json& fit) { fit["rates"][1]["bytes"] = 1024; }), "m.json: collectives[0].rates[1].bytes");
}

TEST(MachineFile, WritesNoMachineThatWouldNotBeReadAgain) {
  const auto refused = [](const auto& change) {
    Machine machine = aloni::test::machine_with_every_field();
    change(machine);
    EXPECT_THROW(to_json_text(machine), InvalidArgument);
  };
  refused([](Machine& m) { m.exchange_seconds = std::numeric_limits<double>::quiet_NaN(); });
  refused([](Machine& m) { m.links[2].latency = -1; });
  refused([](Machine& m) { m.name = "\xff"; });
  refused([](Machine& m) { m.planning.nodes = {0, 1}; });
  refused([](Machine& m) { m.planning.tuning.emplace(); });
  refused([](Machine& m) { m.planning.convolutions = m.convolutions[1].measured; });
  refused([](Machine& m) {
    m.convolutions[0].measured =
        MeasuredImplementations({{{1, 2}, {{.implementation = "direct", .seconds = 1, .runs = 1}}}}, 1);
  });
  refused([](Machine& m) {
    m.convolutions[0].measured = MeasuredImplementations({{m.convolutions[1].measured.times().begin()->first, {}}}, 1);
  });
  refused([](Machine& m) { m.learned[0].type = nn::ElementType::int32; });
  refused([](Machine& m) { m.learned[0].networks[1].layers[1].weights[0] = std::numeric_limits<float>::infinity(); });
  refused([](Machine& m) { m.learned[0].networks.clear(); });
  refused([](Machine& m) { m.collectives[0].rates.clear(); });
  refused([](Machine& m) { m.learned[0].least[2] = 2 * m.learned[0].largest[2]; });
  refused([](Machine& m) { m.all_reduces[0].measurements[0].algorithm = comm::AllReduceAlgorithm::automatic; });
}

TEST(MachineFile, ReadsAFileLongerThanAMebibyteAndNamesAMissingOne) {
  const aloni::test::TemporaryFolder folder;
  Machine machine = generic_machine();
  machine.kernels.resize(1);
  for (int i = 0; i < 15'000; ++i)
    machine.kernels[0].times["a kernel with a long name " + std::to_string(i)] = {.seconds = 1e-3 * i, .runs = 10};
  const std::string path = folder.path("machine.json");
  std::ofstream(path) << to_json_text(machine);
  EXPECT_EQ(read_machine(path), machine);
  EXPECT_THROW(read_machine(folder.path("another.json")), FileError);
}

}  // namespace test_machine_file
}  // namespace aloni::model
