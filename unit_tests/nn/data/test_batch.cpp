// A mini-batch on every grid: each rank gets the pixels of its own box, moved as told.
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/data/batch.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aloni::nn {
namespace test_batch {

using views::Dim;
using views::ProcessGrid;

// Five images of 5 x 4 pixels of two channels, all bytes different from background.
LabelledImages made_up_images() {
  LabelledImages images;
  images.image = {{1, 1, 5, 4, 2}};
  for (int i = 0; i < 5 * 5 * 4 * 2; ++i) images.pixels.push_back(static_cast<std::uint8_t>(1 + i % 255));
  images.labels = {4, 3, 2, 1, 0};
  images.scale = 0.5;
  images.mean = 1;
  images.deviation = 2;
  return images;
}

NetworkDescription any_network(const views::Extents& image) {
  NetworkDescription n;
  n.input = image;
  n.layers = {{"relu", Relu{}, {"input"}}, {"flat", Flatten{}, {"relu"}}, {"fc", Dense{5}, {"flat"}}};
  return n;
}

void expect_pixels(const std::string& grid, const std::vector<Shift>& shifts) {
  SCOPED_TRACE("grid " + grid);
  const auto comm = aloni::test::make_communicator();
  const LabelledImages images = made_up_images();
  const NetworkDescription description = any_network(images.image);
  const Queue<> queue;
  Parameters<double> parameters(queue, description, 1);
  const std::vector<Index> chosen{3, 0, 4};
  Network<double> network(comm, queue, description, Strategy::uniform(ProcessGrid::parse(grid)), 3, parameters);
  fill_batch(queue, images, chosen, network, shifts);
  queue.fence("aloni::test: the mini-batch is looked at");

  const auto input = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), network.input());
  const views::Box& box = network.input_box();
  for (Index n = box.lower(Dim::sample); n < box.upper(Dim::sample); ++n) {
    const Shift shift = shifts.empty() ? Shift{} : shifts[n];
    for (Index h = box.lower(Dim::height); h < box.upper(Dim::height); ++h) {
      for (Index w = box.lower(Dim::width); w < box.upper(Dim::width); ++w) {
        for (Index c = 0; c < 2; ++c) {
          const Index row = h - shift.down, column = w - shift.right;
          const bool inside = row >= 0 && row < 5 && column >= 0 && column < 4;
          const int pixel = inside ? images.pixels[((chosen[n] * 5 + row) * 4 + column) * 2 + c] : 0;
          const double value =
              input(n - box.lower(Dim::sample), 0, h - box.lower(Dim::height), w - box.lower(Dim::width), c);
          ASSERT_EQ(value, (pixel * 0.5 - 1) / 2)
              << "sample " << n << " row " << h << " column " << w << " channel " << c;
        }
      }
    }
  }
  const auto labels = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), network.labels());
  for (std::size_t i = 0; i < labels.extent(0); ++i) {
    EXPECT_EQ(labels(i), images.labels[chosen[network.output_box().lower(Dim::sample) + i]]);
  }
}

std::vector<std::string> grids(int ranks) {
  std::vector<std::string> texts;
  for (const auto& g : views::all_grids(ranks, {Dim::sample, Dim::height, Dim::width})) texts.push_back(to_string(g));
  return texts;
}

int world_size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

TEST(FillBatch, GivesEachRankItsBox) {
  for (const auto& grid : grids(world_size())) expect_pixels(grid, {});
}

TEST(FillBatch, MovesEverySampleByItsOwnShift) {
  for (const auto& grid : grids(world_size())) {
    expect_pixels(grid, {{0, 0}, {1, -1}, {-2, 3}});
    expect_pixels(grid, {{4, 0}, {0, -3}, {-4, 3}});
  }
}

TEST(FillBatch, MayMoveImagesOutOfSight) {
  for (const auto& grid : grids(world_size())) expect_pixels(grid, {{5, 0}, {0, -4}, {-1000, 1000}});
}

TEST(FillBatch, RefusesAnotherNumberOfShifts) {
  const auto comm = aloni::test::make_communicator();
  const LabelledImages images = made_up_images();
  const NetworkDescription description = any_network(images.image);
  const Queue<> queue;
  Parameters<double> parameters(queue, description, 1);
  Network<double> network(comm, queue, description, Strategy::uniform({}), 2, parameters);
  const std::vector<Index> chosen{1, 2};
  const std::vector<Shift> shifts(3);
  EXPECT_THROW(fill_batch(queue, images, chosen, network, shifts), InvalidArgument);
}

}  // namespace test_batch
}  // namespace aloni::nn
