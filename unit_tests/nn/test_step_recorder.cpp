// A step that repeats recordings of its kernels, on a device made of lists. A kernel that is submitted runs at once, or
// it is recorded with the arguments that it has then.
#include <aloni/core/stopwatch.hpp>
#include <aloni/nn/step.hpp>
#include <aloni/nn/step_recorder.hpp>

#include "support/transport.hpp"

#include <gtest/gtest.h>
#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {
namespace test_step_recorder {

using Exec = Kokkos::DefaultHostExecutionSpace;
using Kernel = std::function<void()>;

struct ListDevice {
  bool recording = false;
  std::vector<Kernel> recorded = {};
  int submitted = 0, launched = 0, destroyed = 0;
  int memory = 0;  ///< stands for an address
  std::optional<std::string> refuses_to_begin = {}, breaks = {};

  void submit(Kernel kernel) {
    ++submitted;
    if (!recording) return kernel();
    recorded.push_back(std::move(kernel));
  }
};

class ListGraphs {
  struct Destroy {
    ListDevice* device;
    void operator()(const std::vector<Kernel>* kernels) const {
      ++device->destroyed;
      delete kernels;
    }
  };

 public:
  using Graph = std::unique_ptr<const std::vector<Kernel>, Destroy>;
  using Recorded = std::pair<std::optional<Graph>, std::string>;
  using Addresses = int;

  explicit ListGraphs(ListDevice& device) : device_(&device) {}
  int addresses(std::span<const Queue<Exec>>) const { return device_->memory; }
  std::optional<std::string> begin(const Queue<Exec>&) {
    if (device_->refuses_to_begin) return device_->refuses_to_begin;
    device_->recording = true;
    return std::nullopt;
  }
  Recorded end(const Queue<Exec>&) {
    device_->recording = false;
    std::vector<Kernel> kernels = std::exchange(device_->recorded, {});
    if (device_->breaks) return {std::nullopt, *device_->breaks};
    return {Graph(new std::vector<Kernel>(std::move(kernels)), Destroy{device_}), ""};
  }
  void launch(const Graph& graph, const Queue<Exec>&) const {
    ++device_->launched;
    for (const Kernel& kernel : *graph) kernel();
  }

 private:
  ListDevice* device_;
};

/// a += 1; b += a; an update c -= rate * b; d += c; e += d. The rate is chosen in each step.
class SmallStep {
 public:
  /// `says`: StepNode::changing_arguments of the update.
  SmallStep(ListDevice& device, bool records, std::optional<std::string> says = "the rate") : device_(device) {
    add("a", "", [this] { submit([this] { ++values[0]; }); });
    add("b", "", [this] { submit([this] { values[1] += values[0]; }); });
    add("c", std::move(says), [this] { submit([this, by_value = rate] { values[2] -= by_value * values[1]; }); });
    add("d", "", [this] { submit([this] { values[3] += values[2]; }); });
    add("e", "", [this] {
      if (throws) throw std::runtime_error("no memory for e");
      submit([this] { values[4] += values[3]; });
    });
    if (records) step_.set_recorder(std::make_unique<GraphRecorder<Exec, ListGraphs>>(ListGraphs(device)));
    step_.prepare({}, 1);
  }

  void run(double of_step, bool one_by_one = false) {
    rate = of_step;
    step_.execute(std::span(&queue_, 1), comm_, stopwatch_, nullptr, one_by_one);
  }
  std::array<double, 5> run_all(const std::vector<double>& rates) {
    for (const double r : rates) run(r);
    return values;
  }
  const Step<Exec>& step() const { return step_; }

  std::array<double, 5> values{};
  double rate = 0;
  bool throws = false;

 private:
  void submit(Kernel kernel) { device_.submit(std::move(kernel)); }
  void add(const char* name, std::optional<std::string> says, std::function<void()> run) {
    // All depend on each other, so they run in this order.
    StepNode node{.label = std::string("aloni::test::") + name,
                  .accesses = {{&values, {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, true}},
                  .changing_arguments = std::move(says)};
    step_.kernel(std::move(node), [run = std::move(run)](const Exec&) { run(); });
  }

  ListDevice& device_;
  comm::Communicator comm_ = aloni::test::make_communicator();
  Queue<Exec> queue_;
  Stopwatch stopwatch_;
  Step<Exec> step_;
};

const std::vector<double> rates{0.5, 0.25, 0.125, 2.0, 4.0};

std::array<double, 5> expected() {
  ListDevice device;
  return SmallStep(device, false).run_all(rates);
}

TEST(StepRecorder, SubmitsEachKernelTwiceAndThenRepeatsIt) {
  ListDevice device;
  SmallStep step(device, true);
  ASSERT_EQ(step.step().segments().segments.size(), 3u);
  EXPECT_EQ(step.run_all(rates), expected());
  EXPECT_EQ(device.submitted, 2 * 4 + 5);  // four kernels in the first two steps, and the update in all five
  EXPECT_EQ(device.launched, 2 * 4);       // two recordings in four steps
}

/// The device does keep the arguments of the first recording: only the mark of the node saves the numbers.
TEST(StepRecorder, WouldFreezeArgumentsOfANodeThatHidesThem) {
  ListDevice device;
  SmallStep hides(device, true, "");
  ASSERT_EQ(hides.step().segments().segments.size(), 1u);
  EXPECT_NE(hides.run_all(rates), expected());
  ListDevice other;
  SmallStep says_nothing(other, true, std::nullopt);
  ASSERT_EQ(says_nothing.step().segments().segments.size(), 3u);
  EXPECT_EQ(says_nothing.run_all(rates), expected());
}

TEST(StepRecorder, RecordsAgainWhenMemoryHasMoved) {
  ListDevice device;
  SmallStep step(device, true);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    if (i == 3) device.memory = 1;
    step.run(rates[i]);
  }
  EXPECT_EQ(step.values, expected());
  EXPECT_EQ(device.destroyed, 2);
  EXPECT_EQ(device.submitted, 4 * 4 + 5);  // without a recording, recorded, moved, recorded again
  EXPECT_EQ(device.launched, 2 * 3);
}

TEST(StepRecorder, SubmitsAllKernelsIfAskedTo) {
  ListDevice device;
  SmallStep step(device, true);
  for (const double r : rates) step.run(r, true);
  EXPECT_EQ(step.values, expected());
  EXPECT_EQ(device.submitted, 5 * 5);
  EXPECT_EQ(device.launched, 0);
}

TEST(StepRecorder, SubmitsTheKernelsOfASegmentThatCannotBeRecorded) {
  for (const bool at_begin : {true, false}) {
    ListDevice device;
    (at_begin ? device.refuses_to_begin : device.breaks) = "a copy from the host";
    SmallStep step(device, true);
    EXPECT_EQ(step.run_all(rates), expected());
    EXPECT_EQ(device.launched, 0);
    EXPECT_EQ(device.submitted, 5 * 5 + (at_begin ? 0 : 4));  // recorded in vain, once
    EXPECT_EQ(step.step().recorder()->refusal(0), "a copy from the host");
    EXPECT_EQ(step.step().recorder()->refusal(1), std::nullopt);  // the update is in no recorded segment
  }
}

TEST(StepRecorder, ThrowsTheErrorOfANodeAndRecordsLater) {
  ListDevice device;
  SmallStep step(device, true);
  step.run(rates[0]);
  step.throws = true;
  EXPECT_THROW(step.run(rates[1]), std::runtime_error);
  EXPECT_FALSE(device.recording);
  step.throws = false;
  step.values = {};
  ListDevice plain;
  SmallStep same(plain, false);
  EXPECT_EQ(step.run_all(rates), same.run_all(rates));
  EXPECT_EQ(step.step().recorder()->refusal(2), std::nullopt);
  EXPECT_GT(device.launched, 0);
}

TEST(StepRecorder, IsNeededForSegments) {
  ListDevice device;
  const SmallStep step(device, false);
  EXPECT_TRUE(step.step().segments().segments.empty());
  EXPECT_EQ(step.step().recorder(), nullptr);
}

}  // namespace test_step_recorder
}  // namespace aloni::nn
