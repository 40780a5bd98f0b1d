#include <aloni/core/profiling.hpp>
#include <aloni/core/queue.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace test_profiling {

std::vector<std::string> events;  // callbacks of Kokkos Tools are plain functions

class Profiling : public testing::Test {
 protected:
  void SetUp() override {
    events.clear();
    namespace tools = Kokkos::Tools::Experimental;
    tools::set_push_region_callback([](const char* name) { events.push_back(std::string("push ") + name); });
    tools::set_pop_region_callback([] { events.emplace_back("pop"); });
    tools::set_begin_fence_callback([](const char* name, std::uint32_t, std::uint64_t*) {
      const std::string label = name;
      // Kokkos fences around every callback of a tool that has not declined it.
      if (label.find("Kokkos Profile Tool Fence") == label.npos) events.push_back("fence " + label);
    });
  }
  void TearDown() override { Kokkos::Tools::Experimental::set_callbacks({}); }
};

TEST_F(Profiling, RegionsNestAndCloseAtTheEndOfTheirScope) {
  {
    aloni::ScopedRegion outer("aloni::test::outer");
    aloni::ScopedRegion inner("aloni::test::inner");
  }
  EXPECT_EQ(events, (std::vector<std::string>{"push aloni::test::outer", "push aloni::test::inner", "pop", "pop"}));
}

TEST_F(Profiling, ARegionOpenedBeforeAToolCameIsNotClosedTowardsIt) {
  Kokkos::Tools::Experimental::set_callbacks({});
  {
    aloni::ScopedRegion region("aloni::test::early");
    SetUp();
  }
  EXPECT_TRUE(events.empty());
}

TEST_F(Profiling, AQueueFencesWithItsReason) {
  const aloni::Queue<> queue;
  queue.fence("aloni::test: the host reads the result");
  EXPECT_EQ(events, std::vector<std::string>{"fence aloni::test: the host reads the result"});
}

}  // namespace test_profiling
