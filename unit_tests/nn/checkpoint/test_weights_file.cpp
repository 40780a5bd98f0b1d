// Weights go out to a safetensors file and come in again, on any split.
#include "support/transport.hpp"
#include "training_of_images.hpp"

#include <aloni/core/bfloat16.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/nn/safetensors.hpp>

#include <gmock/gmock.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace aloni::nn::test {
namespace test_weights_file {

TrainOptions options_for(std::int64_t steps) {
  TrainOptions options;
  options.batch = 8;
  options.steps = steps;
  options.optimiser = SgdOptions{.learning_rate = steps == 1 ? 0.0 : 0.05};  // one step: only to read and write
  return options;
}

std::map<std::string, std::vector<double>> tensors_in(const std::string& path) {
  const Safetensors file(io::real_file_system(), path);
  std::map<std::string, std::vector<double>> tensors;
  for (const auto& [name, entry] : file.entries()) {
    EXPECT_EQ(entry.type, "F64");
    tensors[name].resize(static_cast<std::size_t>(entry.bytes) / sizeof(double));
    file.read(name, std::as_writable_bytes(std::span(tensors[name])));
  }
  return tensors;
}

/// Collective. Returns the options of the training that wrote the file.
TrainOptions write_weights_of_one_step(const comm::Communicator& comm, const std::string& split,
                                       const std::string& path) {
  TrainOptions options = options_for(1);
  options.export_weights = path;
  train_small_net(comm, split, options);
  comm.barrier();
  return options;
}

TEST(WeightsFile, GoesOutAndInOnAnySplit) {
  const auto comm = aloni::test::make_communicator();
  const SharedFolder folder(comm);
  const std::string first = folder.path("first"), second = folder.path("second");
  for (const std::string& written : small_splits(comm.size())) {
    TrainOptions options = options_for(6);
    options.export_weights = first;
    train_small_net(comm, written, options);
    comm.barrier();
    const auto saved = tensors_in(first);
    ASSERT_EQ(saved.size(), 10u);
    EXPECT_EQ(saved.at("conv2.weight").size(), 6u * 3 * 3 * 4);
    EXPECT_NE(saved.at("norm.running_mean")[0], 0);
    for (const std::string& read : small_splits(comm.size())) {
      SCOPED_TRACE(written + ", then " + read);
      options = options_for(1);
      options.seed = 77;
      options.initial_weights = first;
      options.export_weights = second;
      train_small_net(comm, read, options);
      comm.barrier();
      const auto again = tensors_in(second);
      for (const auto& [name, values] : saved) {
        const bool is_learned = name.find("running") == std::string::npos;
        if (is_learned) {
          EXPECT_EQ(again.at(name), values) << name;
        }
      }
      comm.barrier();
    }
  }
}

TEST(WeightsFile, IsRefusedIfItIsOfAnotherNetwork) {
  const auto comm = aloni::test::make_communicator();
  const SharedFolder folder(comm);
  const std::string path = folder.path("weights"), split = small_splits(comm.size()).back();
  TrainOptions options = write_weights_of_one_step(comm, split, path);
  const auto saved = tensors_in(path);
  comm.barrier();
  // Writes the tensors again, with a change, and reads them.
  const auto refusal = [&](const auto& change) -> std::string {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, values] : saved)
      tensors.push_back({name, ElementType::float64, {std::ssize(values)}, std::as_bytes(std::span(values))});
    change(tensors);
    if (comm.rank() == 0) write_safetensors(io::real_file_system(), path, tensors);
    comm.barrier();
    options.export_weights = "";
    options.initial_weights = path;
    std::string text;
    try {
      train_small_net(comm, split, options);
    } catch (const InvalidArgument& e) {
      text = e.what();
    }
    comm.barrier();
    return text;
  };
  using testing::HasSubstr;
  const auto give_shapes = [](std::vector<NamedTensor>& tensors) {
    for (NamedTensor& t : tensors) {
      if (t.name == "conv1.weight") t.shape = {4, 3, 3, 2};  // without depth
      if (t.name == "conv2.weight") t.shape = {6, 1, 3, 3, 4};
      if (t.name == "fc.weight") t.shape = {7, t.shape[0] / 7};
    }
  };
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("shape of conv1.weight"));
  // The dense layer's inputs are the flattened 4 x 3 x 6 elements.
  EXPECT_EQ(refusal(give_shapes), "");
  EXPECT_THAT(refusal([&](auto& tensors) {
                give_shapes(tensors);
                tensors.pop_back();
              }),
              HasSubstr("tensor = norm.running_variance: expected a tensor of this name"));
  EXPECT_THAT(refusal([&](auto& tensors) {
                give_shapes(tensors);
                tensors.push_back(tensors.back());
                tensors.back().name = "fc2.bias";
              }),
              HasSubstr("fc2.bias: expected only tensors of the network"));
  options.initial_weights = folder.path("none");
  EXPECT_THROW(train_small_net(comm, split, options), Error);
}

TEST(WeightsFile, IsConvertedFromOtherTypes) {
  const auto comm = aloni::test::make_communicator();
  const SharedFolder folder(comm);
  const std::string path = folder.path("weights"), split = small_splits(comm.size()).back();
  TrainOptions options = write_weights_of_one_step(comm, split, path);
  const Safetensors file(io::real_file_system(), path);
  const auto saved = tensors_in(path);
  comm.barrier();
  const std::string bias = "conv1.bias", second_bias = "fc.bias";
  std::vector<comm::bfloat16> halves;
  std::vector<comm::float16> other_halves;
  std::vector<std::vector<float>> floats;
  std::vector<NamedTensor> tensors;
  for (const double value : saved.at(bias)) halves.emplace_back(static_cast<float>(value));
  for (const double value : saved.at(second_bias)) other_halves.emplace_back(static_cast<float>(value));
  for (const auto& [name, values] : saved) {
    floats.emplace_back(values.begin(), values.end());
    const auto& shape = file.entries().at(name).shape;
    if (name == bias) {
      tensors.push_back({name, ElementType::bfloat16, shape, std::as_bytes(std::span(halves))});
    } else if (name == second_bias) {
      tensors.push_back({name, ElementType::float16, shape, std::as_bytes(std::span(other_halves))});
    } else {
      tensors.push_back({name, ElementType::float32, shape, std::as_bytes(std::span(floats.back()))});
    }
  }
  if (comm.rank() == 0) write_safetensors(io::real_file_system(), path, tensors);
  comm.barrier();
  options.initial_weights = path;
  options.export_weights = path + ".second";
  train_small_net(comm, split, options);
  comm.barrier();
  const auto again = tensors_in(path + ".second");
  for (std::size_t i = 0; i < halves.size(); ++i) EXPECT_EQ(again.at(bias)[i], static_cast<double>(halves[i]));
  for (std::size_t i = 0; i < other_halves.size(); ++i)
    EXPECT_EQ(again.at(second_bias)[i], static_cast<double>(other_halves[i]));
  for (std::size_t i = 0; i < saved.at("fc.weight").size(); ++i)
    EXPECT_EQ(again.at("fc.weight")[i], static_cast<float>(saved.at("fc.weight")[i]));
  EXPECT_NE(again.at(bias), saved.at(bias));
  EXPECT_NE(again.at(second_bias), saved.at(second_bias));
}

}  // namespace test_weights_file
}  // namespace aloni::nn::test
