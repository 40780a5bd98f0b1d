// A U-Net learns which pixels belong to discs. The program makes the images, writes them as .npy files, trains on them
// with the mini-batches and the images split over the ranks, and compares its masks of new images with the true ones.
//
//   mpirun -n 2 segmentation FOLDER [--grid h2] [--size 64] [--samples 256] [--epochs 6] [--batch 8] [--least 0.95]
//
// It fails if the intersection over union (IoU) of the new images is below --least. The default numbers, 192 steps of 8
// images, reach it; they take minutes, and the test of this program has fewer. The command can train on the same
// folder: aloni train --model unet2d --data FOLDER.
#include "discs.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/data/data_sets.hpp>
#include <aloni/nn/data/load_batch.hpp>
#include <aloni/nn/data/sample_order.hpp>
#include <aloni/nn/metrics.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network.hpp>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <vector>

namespace segmentation {

using namespace aloni;

struct Options {
  std::string folder, grid = "h1";
  Index size = 64, samples = 256, epochs = 6, batch = 8;
  double least = 0.95;  ///< IoU
};

/// Throws InvalidArgument (equal on all ranks).
Options parse(int argc, char** argv) {
  Options options;
  if (argc < 2) throw InvalidArgument("segmentation", "FOLDER", "nothing", "a folder for the images");
  options.folder = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string_view flag = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    const auto number = [&](auto& to, auto least, auto most, const char* expectation) {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), to);
      if (error != std::errc{} || end != value.data() + value.size() || to < least || to > most)
        throw InvalidArgument("segmentation", std::string(flag), std::string(value), expectation);
    };
    if (flag == "--grid")
      options.grid = value;
    else if (flag == "--size")
      number(options.size, 16, 1024, "a number of pixels from 16 to 1024");
    else if (flag == "--samples")
      number(options.samples, 8, 100000, "a number of images from 8 to 100000");
    else if (flag == "--epochs")
      number(options.epochs, 1, 1000, "a number of epochs from 1 to 1000");
    else if (flag == "--batch")
      number(options.batch, 1, 1000, "a number of images from 1 to 1000");
    else if (flag == "--least")
      number(options.least, 0.0, 1.0, "an IoU from 0 to 1");
    else
      throw InvalidArgument("segmentation", "argument", std::string(flag),
                            "--grid, --size, --samples, --epochs, --batch or --least");
  }
  return options;
}

/// The IoU of the test set. Collective.
double train(const comm::Communicator& comm, const Options& options) {
  // If one rank cannot write or read a file, collectively() throws on all ranks.
  comm::collectively(comm, "writing the images", [&] {
    if (comm.rank() != 0) return;
    std::filesystem::create_directories(options.folder);
    write_set(options.folder, "", make_set(options.samples, options.size, 1));
    write_set(options.folder, "test-", make_set(std::max<Index>(options.samples / 4, options.batch), options.size, 2));
  });
  const auto sets = comm::collectively(comm, "reading the images", [&] { return nn::open_data_sets(options.folder); });
  auto unet = nn::make_model("unet2d", {.input = sets.train.inputs->extents()});
  unet.loss = nn::Loss::dice;
  const Queue<> queue;
  nn::Parameters<float> parameters(comm, queue, unet, 1, nn::ParameterUse::training, nn::OptimiserKind::adam);
  const auto strategy = nn::Strategy::uniform(views::ProcessGrid::parse(options.grid));
  nn::Network<float> network(comm, queue, unet, strategy, options.batch, parameters);

  const nn::BatchPart part = part_of_batch(network, unet);
  nn::HostBatch<float> batch;
  const auto fill = [&](const nn::Dataset& set, const std::vector<Index>& order, Index step, Index epoch) {
    const std::span<const Index> chosen(&order[static_cast<std::size_t>(step * options.batch)],
                                        static_cast<std::size_t>(options.batch));
    read_batch(set, {.epoch = static_cast<std::uint64_t>(epoch)}, chosen, part, batch);
    load_batch(queue, batch, network);
  };
  std::vector<Index> order;
  std::int64_t updates = 0;
  for (Index epoch = 0; epoch < options.epochs; ++epoch) {
    nn::epoch_order(order, sets.train.size(), 1, static_cast<std::uint64_t>(epoch));  // the same on all ranks
    const Index steps = sets.train.size() / options.batch;
    double loss = 0;
    for (Index step = 0; step < steps; ++step) {
      fill(sets.train, order, step, epoch);
      loss += network.train_step(queue).loss / static_cast<double>(steps);
      const double left = 1 - static_cast<double>(updates) / static_cast<double>(steps * options.epochs);
      parameters.update(queue, nn::AdamOptions{.learning_rate = 1e-3 * left}, ++updates);
    }
    if (comm.rank() == 0) std::printf("epoch %d: Dice loss %.4f\n", static_cast<int>(epoch + 1), loss);
  }

  network.synchronise_statistics(queue);
  order.resize(static_cast<std::size_t>(sets.test->size()));
  std::iota(order.begin(), order.end(), Index{0});
  std::vector<double> sums(static_cast<std::size_t>(nn::metric_sums(unet.loss, 1)));
  Index pixels = 0;
  for (Index step = 0; step < sets.test->size() / options.batch; ++step) {
    fill(*sets.test, order, step, 0);
    network.evaluate(queue);
    const auto of_batch = network.metric_sums();  // over all ranks
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_batch[i];
    pixels += nn::predictions_in(unet.loss, network.output_distribution().extents());
  }
  return nn::metrics_of(unet.loss, 1, sums, pixels).front().value;
}

}  // namespace segmentation

int main(int argc, char** argv) {
  const aloni::Environment environment(argc, argv);
  const auto comm = aloni::comm::from_mpi(MPI_COMM_WORLD);
  try {
    const auto options = segmentation::parse(argc, argv);
    const double iou = segmentation::train(comm, options);
    if (comm.rank() == 0) std::printf("IoU of new images: %.4f, at least %.4f wanted\n", iou, options.least);
    return iou >= options.least ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", comm.rank(), e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
