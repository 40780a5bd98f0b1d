// Times convolution layers split over all ranks, and compares them with a limit. The limit is oneDNN on the whole
// layer, in one process with two threads: compare it with runs on two ranks.
//
//   conv/LAYER/forward|backward_data|backward_filter/SPLIT     the layer split over all ranks, messages included
//   limit/LAYER/forward|backward_data|backward_filter          oneDNN on rank 0, two threads; the other ranks sleep
//   shard/LAYER/forward|backward_data|backward_filter/SPLIT    local part of each rank, all ranks at once, no messages
//
//   size/PASS/WIDTH                     3x3 convolution, 64 -> 64 channels, split in height, on squares of 128 to 2,048
//                                       pixels. items: output pixels. extra_memory: workspace relative to the
//                                       activations and their gradients
//   overlap/LAYER/computation|communication|blocking|interior_first
//                                       forward and backward passes, split in height. computation: without exchanges;
//                                       communication: exchanges only; blocking, interior_first: both, with this
//                                       nn::Overlap. For slow links (bench/overlap.sh)
//   chain/blocking|interior_first|recompute_halo
//                                       inference through eight thin layers split in height (conv/chain_run.hpp).
//                                       recompute_halo exchanges ghosts once for all layers
//   interior/LAYER/h2w2/unsplit|interior_and_border
//                                       forward pass of the part of a rank of four, without messages: in one call, or
//                                       the interior and its border one after the other (conv/interior_run.hpp)
//
// All cases reorder the filters into oneDNN's order before the clock starts. The library's cases do so because their
// filter version stays the same. A network gets this in evaluation with ParameterWrites::announced; a training step
// reorders the filters of each pass once.
//
// SPLIT is h2, w2, c2, f2 or n2 with two ranks: height, width, channels, filters or samples. With n the number of
// samples is the number of ranks. The ratio limit / shard bounds the speed of a split layer relative to the limit;
// messages reduce it further. Results are checked before the clock starts (conv/check.hpp).
#include "conv/chain_run.hpp"
#include "conv/interior_run.hpp"
#include "conv/layers.hpp"
#include "conv/local_run.hpp"
#include "conv/split_run.hpp"
#include "support/benchmark.hpp"

#ifdef ALONI_BENCH_ONEDNN
#include "conv/onednn_limit.hpp"
#endif

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

namespace aloni::bench {

namespace {

using nn::local::ConvolutionBackend;
using nn::local::ConvolutionPass;

// Many short batches: other work on the machine is unlikely to disturb the fastest one.
constexpr TimedOptions options{.min_seconds = 0.5, .min_repetitions = 10, .batches = 50};

std::string case_name(const std::string& kind, const Layer& layer, ConvolutionPass pass) {
  return kind + "/" + layer.name + "/" + std::string(name(pass));
}

#ifdef ALONI_BENCH_ONEDNN
void add_limit(const comm::Communicator& world, const Layer& layer, ConvolutionPass pass) {
  add_timed(
      world, case_name("limit", layer, pass),
      [&world, layer, pass]() -> Case {
        Case result{.run = [] {}, .flops = flops(layer.problem), .on_first_rank = true};
        if (world.rank() != 0) return result;
        const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 2U));
        const auto limit = std::make_shared<OnednnLimit>(layer, pass, threads);
        result.run = [limit] { limit->run(); };
        result.label = limit->implementation();
        return result;
      },
      options);
}
#else
void add_limit(const comm::Communicator&, const Layer&, ConvolutionPass) {}  // build without oneDNN
#endif

SplitWork work_of(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::forward:
      return SplitWork::forward;
    case ConvolutionPass::backward_data:
      return SplitWork::backward_data;
    case ConvolutionPass::backward_filter:
      break;
  }
  return SplitWork::backward_filter;
}

/// Forward and backward passes of a layer split in height, or the part of them that `work` selects.
void add_overlap(const comm::Communicator& world, const Layer& layer, const std::string& what, SplitWork work,
                 nn::Overlap overlap) {
  add_timed(
      world, "overlap/" + layer.name + "/" + what,
      [&world, layer, work, overlap]() -> Case {
        nn::LayerSplit split = nn::LayerSplit::parse("h" + std::to_string(world.size()));
        split.overlap = overlap;
        const auto step = std::make_shared<SplitRun>(world, layer, work, split);
        return {.run = [step] { step->run(); }, .counters = {{"sent_bytes", static_cast<double>(step->sent_bytes())}}};
      },
      options);
}

void add_split(const comm::Communicator& world, const Layer& layer, ConvolutionPass pass, char dimension) {
  const std::string text = dimension + std::to_string(world.size());
  add_timed(
      world, case_name("conv", layer, pass) + "/" + text,
      [&world, layer, pass, text]() -> Case {
        const auto split = std::make_shared<SplitRun>(world, layer, work_of(pass), nn::LayerSplit::parse(text));
        return {.run = [split] { split->run(); },
                .flops = split->flops(),
                .counters = {{"workspace_bytes", static_cast<double>(split->workspace_bytes())}}};
      },
      options);
}

void add_shard(const comm::Communicator& world, const Layer& layer, ConvolutionPass pass, char dimension) {
  const auto ranks = static_cast<Index>(world.size());
  add_timed(
      world, case_name("shard", layer, pass) + "/" + dimension + std::to_string(ranks),
      [&world, layer, pass, dimension, ranks]() -> Case {
        const auto problem = shard_of(layer, pass, dimension, ranks, static_cast<Index>(world.rank()));
        const auto local_pass = pass_of_problem(layer, pass);
        const auto part =
            std::make_shared<LocalRun<>>(problem, local_pass, ConvolutionBackend::automatic, Filters::stay);
        return {.run = [part] { part->run(); },
                .flops = flops(layer.problem),
                .label = part->convolution().implementation(local_pass)};
      },
      options);
}

void add_interior(const comm::Communicator& world, const Layer& layer, bool interior_first) {
  const std::string split = "h2w2";
  add_timed(
      world, "interior/" + layer.name + "/" + split + (interior_first ? "/interior_and_border" : "/unsplit"),
      [&world, layer, split, interior_first]() -> Case {
        const auto part =
            std::make_shared<InteriorRun>(layer, nn::LayerSplit::parse(split), world.rank() % 4, interior_first);
        return {.run = [part] { part->run(); },
                .flops = part->flops() * world.size(),
                .counters = {{"calls", static_cast<double>(part->calls())}}};
      },
      options);
}

void add_chain(const comm::Communicator& world, nn::Overlap overlap) {
  add_timed(
      world, "chain/" + std::string(nn::name(overlap)),
      [&world, overlap]() -> Case {
        const auto chain = std::make_shared<ChainRun>(world, overlap);
        return {.run = [chain] { chain->run(); }};
      },
      options);
}

void add_size(const comm::Communicator& world, ConvolutionPass pass, Index width) {
  add_timed(
      world, "size/" + std::string(name(pass)) + "/" + std::to_string(width),
      [&world, pass, width]() -> Case {
        const Layer layer = square_layer("c64_" + std::to_string(width), 64, width, 64, 3, 1);
        const auto split = std::make_shared<SplitRun>(world, layer, work_of(pass),
                                                      nn::LayerSplit::parse("h" + std::to_string(world.size())));
        const double pixels = static_cast<double>(width * width);
        // Forward has x and y; backward-filter also dy; backward-data also dx.
        const int count = pass == ConvolutionPass::forward ? 2 : pass == ConvolutionPass::backward_filter ? 3 : 4;
        const double tensors = count * 64 * pixels * sizeof(float) / world.size();
        return {.run = [split] { split->run(); },
                .flops = split->flops(),
                .items = pixels,
                .counters = {{"extra_memory", static_cast<double>(split->workspace_bytes()) / tensors}}};
      },
      options);
}

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  for (const Layer& layer : layers()) {
    for (auto pass : {ConvolutionPass::forward, ConvolutionPass::backward_data, ConvolutionPass::backward_filter}) {
      add_limit(world, layer, pass);
      for (char dimension : {'h', 'w', 'c', 'f', 'n'}) add_split(world, layer, pass, dimension);
      for (char dimension : {'h', 'w', 'c', 'f'}) add_shard(world, layer, pass, dimension);
    }
    add_overlap(world, layer, "computation", SplitWork::computation, nn::Overlap::interior_first);
    add_overlap(world, layer, "communication", SplitWork::communication, nn::Overlap::interior_first);
    add_overlap(world, layer, "blocking", SplitWork::step, nn::Overlap::blocking);
    add_overlap(world, layer, "interior_first", SplitWork::step, nn::Overlap::interior_first);
  }
  for (const Layer& layer :
       {square_layer("res2_3x3", 64, 56, 64, 3, 1), square_layer("mesh_conv1_1_2048", 18, 2048, 128, 5, 2, 2)})
    for (const bool interior_first : {false, true}) add_interior(world, layer, interior_first);
  for (auto overlap : {nn::Overlap::blocking, nn::Overlap::interior_first, nn::Overlap::recompute_halo})
    add_chain(world, overlap);
  for (auto pass : {ConvolutionPass::forward, ConvolutionPass::backward_data, ConvolutionPass::backward_filter})
    for (Index width : {128, 256, 512, 1024, 2048}) add_size(world, pass, width);
}

}  // namespace aloni::bench
