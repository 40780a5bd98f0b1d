#pragma once
// A machine with a value in each field, and none of them a default.
#include <aloni/model/machine.hpp>
#include <aloni/nn/local/convolution_times.hpp>

namespace aloni::test {

inline model::LearnedKernel small_learned_kernel() {
  const std::size_t features = model::feature_names(model::KernelKind::pointwise).size();
  model::LearnedKernel learned{.kind = model::KernelKind::pointwise,
                               .type = nn::ElementType::float64,
                               .ranks_per_node = 2,
                               .threads_per_rank = 3,
                               .per_call = 1e-6,
                               .per_flop = 1e-11,
                               .per_byte = 1e-10,
                               .mean = std::vector<double>(features, 1.0 / 3),
                               .deviation = std::vector<double>(features, 0.7),
                               .seconds_mean = -9.5,
                               .seconds_deviation = 1.25,
                               .least = std::vector<double>(features, 1),
                               .largest = std::vector<double>(features, 1e9),
                               .relative_error = 0.125};
  model::Perceptron network;
  network.layers = {{.inputs = static_cast<int>(features), .outputs = 2},
                    {.inputs = 2, .outputs = 1, .weights = {1.0F / 3, -1e-30F}, .biases = {16777217.0F}}};
  for (std::size_t i = 0; i < 2 * features; ++i)
    network.layers[0].weights.push_back(0.1F * static_cast<float>(i) - 1.0F / 7);
  network.layers[0].biases = {0.3F, -0.7F};
  learned.networks = {network, network};
  return learned;
}

inline model::Machine machine_with_every_field() {
  model::Machine machine = model::generic_machine();
  machine.name = "Rechner für \"Tests\"";
  machine.provenance = {{"processor", "a data sheet"}, {"links.self", "a\ttext"}};
  machine.ranks_per_node = 8;
  machine.threads_per_rank = 3;
  machine.most_nodes = 77;
  machine.memory_bytes = 12345678901;
  MachineDescription& planning = machine.planning;
  planning.shared_memory = planning.on_host = planning.onednn = planning.onednn_bfloat16 = false;
  planning.kokkos_kernels = false;
  planning.cudnn = true;
  planning.progress_thread = true;
  planning.direct_bytes = unlimited_bytes;
  planning.consolidate_below = 13;
  planning.fragment_bytes = Index{1} << 30;
  planning.interior_overhead_beside_messages = 0.1;
  planning.interior_overhead_beside_copies = 0.2;
  planning.pixels_per_call = 61.5;
  planning.multiplications_per_copied_element = 1.0 / 3;
  planning.chunk_bytes = 1e6;
  planning.most_chunks = 5;
  planning.multiplications_per_slab = 7e9;
  planning.most_slabs = 6;
  planning.filter_gradient_bytes = 7;
  planning.compute_capability = 80;
  planning.library_bytes = 8;
  planning.kernel_bytes = 9;
  planning.product_bytes = 12;
  planning.node_bytes = 10;
  planning.page_bytes = 11;
  planning.bucket_bytes = 12;
  machine.processor.name = "a processor";
  machine.processor.cores_per_node = 96;
  machine.processor.float16_flops = 3e12;
  machine.processor.host_bandwidth = 2.5e10;
  machine.processor.efficiency = {{model::KernelKind::dense, 0.5}, {model::KernelKind::copy, 1}};
  machine.links[1].latency = 1.0 / 7;
  machine.all_reduces = {{.ranks = 4,
                          .nodes = 2,
                          .latency = 1e-6,
                          .seconds_per_byte = 1e-10,
                          .combine_seconds_per_byte = 2e-11,
                          .measurements = {{comm::AllReduceAlgorithm::ring, 1000, 1e-5, 0},
                                           {comm::AllReduceAlgorithm::hierarchical, 4096, 4e-5, 512}}},
                         {.ranks = 4, .nodes = 1}};
  machine.collectives = {{.operation = comm::OperationKind::all_gather,
                          .method = comm::CollectiveMethod::bruck,
                          .shared_data = true,
                          .ranks = 4,
                          .nodes = 2,
                          .seconds_per_call = 1.0 / 3e6,
                          .message_factor = 0.75,
                          .rates = {{1024, 1}, {1 << 20, 2.0 / 3}},
                          .error = 0.05,
                          .links_error = 0.5}};
  machine.transfers = {
      {.method = model::TransferMethod::send,
       .link = model::LinkKind::within_node,
       .shared_data = true,
       .seconds_per_call = 1.0 / 7e6,
       .message_factor = 1.25,
       .rates = {{256, 1}, {1 << 20, 5.0 / 3}},
       .error = 0.07,
       .links_error = 0.7},
      {.method = model::TransferMethod::copies, .link = model::LinkKind::shared_memory, .rates = {{4096, 2}}}};
  machine.kernels = {{.ranks_per_node = 2, .threads_per_rank = 1, .times = {}},
                     {.ranks_per_node = 1,
                      .threads_per_rank = 2,
                      .times = {{"b 1x2", {.seconds = 1.0 / 3, .spread = 0.01, .runs = 10}},
                                {"a \"quoted\"", {.seconds = 1e-9, .spread = 0, .runs = 1}}}}};
  nn::local::ConvolutionCase convolution{.problem = {.samples = 2, .channels = 3, .filters = 5}};
  MeasuredImplementations::Times times;
  times[numbers_of(convolution)] = {{.implementation = "direct", .seconds = 1.0 / 3, .spread = 0.1, .runs = 10}};
  convolution.input_gaps = true;
  convolution.problem.offset[1] = -1;
  times[numbers_of(convolution)] = {
      {.implementation = "cudnn engine 3", .seconds = 1e-6, .spread = 0.2, .runs = 7, .workspace_bytes = 99},
      {.implementation = "kokkos_kernels", .seconds = 2e-6, .spread = 0, .runs = 8}};
  machine.convolutions = {{.ranks_per_node = 8, .threads_per_rank = 3},
                          {.ranks_per_node = 8,
                           .threads_per_rank = 3,
                           .compute_capability = 80,
                           .measured = MeasuredImplementations(times, 1000)}};
  machine.learned = {small_learned_kernel()};
  return machine;
}

}  // namespace aloni::test
