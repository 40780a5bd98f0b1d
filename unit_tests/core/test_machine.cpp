#include <aloni/core/machine.hpp>

#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

namespace aloni {
namespace test_machine {

using testing::HasSubstr;

TEST(Machine, CountsNodesByTheirRanks) {
  EXPECT_EQ(number_of_nodes({}), 1);
  EXPECT_EQ(number_of_nodes(machine_of_nodes(7, 3)), 3);
  EXPECT_EQ(number_of_nodes(MachineDescription{.nodes = {0, 0, 2, 2}}), 2);
}

TEST(Machine, NamesEachFieldOnce) {
  std::set<std::string_view> names, descriptions;
  const MachineDescription machine;
  const std::vector<MachineField> fields = fields_of(machine);
  for (const MachineField& field : fields) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_TRUE(descriptions.insert(field.description).second) << field.description;
  }
  EXPECT_EQ(fields.size(), 31u);
}

TEST(Machine, HasTextsWithUnits) {
  const std::string text = to_string(MachineDescription{.nodes = {0, 3}, .direct_bytes = 4096, .on_host = false});
  EXPECT_THAT(text, HasSubstr("nodes: 2\n"));
  EXPECT_THAT(text, HasSubstr("values copied from another rank's memory, at least: 4096 bytes\n"));
  EXPECT_THAT(text, HasSubstr("kernels run on the host: no\n"));
  EXPECT_THAT(text, HasSubstr("fragment of a message between nodes, at most: 61440 bytes\n"));
  EXPECT_THAT(text, HasSubstr("partial sums or gathered rows: 1048576 bytes\n"));
  EXPECT_THAT(text, HasSubstr("cost of a kernel call: 60 pixels\n"));
  EXPECT_THAT(to_string(MachineDescription{.direct_bytes = unlimited_bytes}), HasSubstr("at least: unlimited\n"));
}

TEST(Machine, SubmitsKernelsAheadOnDevicesOnly) {
  EXPECT_EQ(MachineDescription{.on_host = true}.kernels_ahead(), 0);
  EXPECT_EQ(MachineDescription{.on_host = false}.kernels_ahead(), 1);
}

}  // namespace test_machine
}  // namespace aloni
