// Each operation's backward pass reads the input and the output that its properties name, and no others.
#include "all_operations.hpp"
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <aloni/nn/operation.hpp>

#include <cmath>
#include <limits>
#include <vector>

namespace aloni::nn::test {
namespace test_operation_memory {

constexpr std::uint64_t seed = 23;

template <class View>
void make_nan(const View& v) {
  Kokkos::deep_copy(v, std::numeric_limits<double>::quiet_NaN());
}

/// All gradients of a step. NaN fills input and output before the backward pass where asked for.
std::vector<double> gradients(const Operation& op, bool nan_input, bool nan_output) {
  NetworkDescription net = alone(op);
  net.layers[0].inputs.resize(static_cast<std::size_t>(properties_of(op).least_inputs), "input");
  const auto comm = aloni::test::make_communicator();
  Run<double> run(comm, net, Strategy::uniform({}), 3, Values::reals, seed, local::ConvolutionBackend::reference);
  const Extents in = run.network.input_distribution().extents(), out = run.network.output_distribution().extents();
  fill<double>(run.network.input(), run.network.input_box(), in, Values::reals, seed, 2);
  run.network.forward(run.queue, Mode::training);
  fill<double>(run.network.output_gradient(), run.network.output_box(), out, Values::reals, seed, 3);
  if (nan_input) make_nan(run.network.input());
  if (nan_output) make_nan(run.network.output());
  run.network.backward(run.queue);
  run.queue.fence("test");
  std::vector<double> values;
  const auto dx = on_host(run.network.input_gradient());
  for_each_index(run.network.input_box(), in,
                 [&](const auto& i, Index) { values.push_back(dx(i[0], i[1], i[2], i[3], i[4])); });
  const auto flat = run.parameters.gather_gradients(run.queue);
  for (std::size_t k = 0; k < flat.extent(0); ++k) values.push_back(flat(k));
  return values;
}

TEST(OperationMemory, BackwardReadsTheInputAndOutputThatThePropertiesName) {
  if (aloni::test::make_communicator().size() > 1) return;
  for (const Operation& op : all_operations()) {
    const OperationProperties p = properties_of(op);
    const auto plain = gradients(op, false, false);
    EXPECT_EQ(gradients(op, true, false) != plain, p.backward_reads_input) << p.kind << ": input";
    EXPECT_EQ(gradients(op, false, true) != plain, p.backward_reads_output) << p.kind << ": output";
    double largest = 0;
    for (const double value : plain) largest = std::max(largest, std::abs(value));
    EXPECT_GT(largest, 0) << p.kind;
  }
}

}  // namespace test_operation_memory
}  // namespace aloni::nn::test
