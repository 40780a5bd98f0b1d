// Checkpoints on files that fail or lose power at each call, and with flipped bits. The ranks run one after another.
#include <aloni/core/error.hpp>
#include <aloni/nn/checkpoint/files.hpp>
#include <aloni/nn/checkpoint/reader.hpp>

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <support/simulated_files.hpp>
#include <vector>

namespace aloni::nn::checkpoint {
namespace test_checkpoint_files {

using aloni::test::SimulatedFiles;
using views::Box;

constexpr int ranks = 4;
const views::Extents weight_extents{{6, 1, 3, 3, 4}}, bias_extents{{1, 1, 1, 1, 5}};

float value_at(std::int64_t step, std::size_t i) { return static_cast<float>(step) * 1000.0f + static_cast<float>(i); }

/// The memory of one rank. The weights are split into two blocks of filters, each kept by two ranks.
struct RankMemory {
  std::vector<float> weight, bias;
  std::vector<TensorSource> sources;

  RankMemory(std::int64_t step, int rank) : weight(3 * 9 * 4), bias(5) {
    const Index half = rank % 2;
    const Box kept{{3 * half, 0, 0, 0, 0}, {3 * half + 3, 1, 3, 3, 4}};
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = value_at(step, i + weight.size() * static_cast<std::size_t>(half));
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = value_at(step, i);
    const auto bytes = [](std::vector<float>& v) { return std::as_bytes(std::span(v)).data(); };
    sources = {{"weight", ElementType::float32, weight_extents, kept, {kept}, 2, bytes(weight)},
               {"bias",
                ElementType::float32,
                bias_extents,
                views::whole(bias_extents),
                {views::whole(bias_extents)},
                1,
                bytes(bias)}};
  }
};

/// The order of calls of CheckpointWriter.
void write_checkpoint(io::FileSystem& files, std::int64_t step, int keep) {
  Manifest manifest;
  manifest.step = step;
  manifest.state.integers["step"] = step;
  std::string failure;
  const auto run = [&](const auto& f) {
    try {
      f();
    } catch (const FileError& e) {
      failure = e.what();
    }
  };
  run([&] { begin_folder(files, "run", step); });
  for (int r = 0; r < ranks && failure.empty(); ++r) {
    RankMemory memory(step, r);
    RankPart part = copy_part(memory.sources, r, ranks, 100);
    EXPECT_EQ(part_bytes(memory.sources, r, ranks, 100), static_cast<Index>(part.bytes.size()));
    run([&] { write_part(files, "run/" + folder_name(step), part); });
    merge(manifest, part.blocks);
  }
  if (failure.empty()) run([&] { finish_folder(files, "run", manifest); });
  if (!failure.empty()) {
    abandon_folder(files, "run", step);
    return;
  }
  run([&] { remove_older(files, "run", step, keep); });
}

/// The step of the newest whole checkpoint, whose values must be right; -1 if there is none.
std::int64_t newest_step(io::FileSystem& files) {
  const Newest found = find_newest(files, "run");
  if (!found.checkpoint) return -1;
  const std::int64_t step = found.checkpoint->manifest().step;
  EXPECT_EQ(found.checkpoint->manifest().state.integers.at("step"), step);
  std::vector<float> values(6 * 9 * 4);
  found.checkpoint->read("weight", ElementType::float32, weight_extents, views::whole(weight_extents),
                         std::as_writable_bytes(std::span(values)));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], value_at(step, i));
  return step;
}

int calls_of_a_checkpoint() {
  SimulatedFiles files;
  write_checkpoint(files, 10, 1);
  const int before = files.calls();
  write_checkpoint(files, 20, 1);
  return files.calls() - before;
}

TEST(CheckpointFiles, AreReadInAnyBox) {
  SimulatedFiles files;
  write_checkpoint(files, 10, 1);
  const Checkpoint checkpoint = open_checkpoint(files, "run", 10);
  EXPECT_GT(checkpoint.manifest().tensors[0].blocks.size(), 4u);
  const Box box{{2, 0, 1, 0, 1}, {5, 1, 3, 2, 3}};
  std::vector<float> values(static_cast<std::size_t>(box.size()));
  checkpoint.read("weight", ElementType::float32, weight_extents, box, std::as_writable_bytes(std::span(values)));
  std::size_t i = 0;
  for (Index n = 2; n < 5; ++n)
    for (Index h = 1; h < 3; ++h)
      for (Index w = 0; w < 2; ++w)
        for (Index c = 1; c < 3; ++c, ++i)
          EXPECT_EQ(values[i], value_at(10, static_cast<std::size_t>(((n * 3 + h) * 3 + w) * 4 + c)));
}

TEST(CheckpointFiles, AreWrittenByAllRanksThatKeepTheTensor) {
  SimulatedFiles files;
  write_checkpoint(files, 10, 1);
  Index most = 0, all = 0;
  for (int r = 0; r < ranks; ++r) {
    const Index bytes = files.size("run/" + folder_name(10) + "/" + data_file_name(r));
    most = std::max(most, bytes);
    all += bytes;
  }
  EXPECT_EQ(all, (6 * 9 * 4 + 5) * 4);
  EXPECT_LE(most, all / ranks + 100);
}

TEST(CheckpointFiles, LoseNothingOlderWhenOneCallFails) {
  const int calls = calls_of_a_checkpoint();
  ASSERT_GT(calls, 20);
  for (const bool stays : {false, true}) {
    for (int call = 1; call <= calls; ++call) {
      SCOPED_TRACE(std::string(stays ? "from" : "at") + " call " + std::to_string(call));
      SimulatedFiles files;
      write_checkpoint(files, 10, 1);
      stays ? files.fail_from(call) : files.fail_at(call);
      write_checkpoint(files, 20, 1);
      ASSERT_GE(newest_step(files), 10);
      files.restart(static_cast<std::uint64_t>(call));  // and the machine crashes then
      ASSERT_GE(newest_step(files), 10);
      write_checkpoint(files, 30, 1);  // the next one finds space, and removes the others
      ASSERT_EQ(newest_step(files), 30);
      ASSERT_THAT(steps_in(files, "run"), testing::ElementsAre(30));
    }
  }
}

TEST(CheckpointFiles, LoseNothingOlderWhenPowerFails) {
  const int calls = calls_of_a_checkpoint();
  int old = 0, fresh = 0;
  for (int call = 1; call <= calls + 1; ++call) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE("call " + std::to_string(call) + ", seed " + std::to_string(seed));
      SimulatedFiles files;
      write_checkpoint(files, 10, 1);
      files.lose_power_at(call);
      write_checkpoint(files, 20, 1);
      files.restart(seed);
      const std::int64_t newest = newest_step(files);
      ASSERT_GE(newest, 10);
      ++(newest == 10 ? old : fresh);
      write_checkpoint(files, 20, 1);  // the same step again, over the remains
      ASSERT_EQ(newest_step(files), 20);
    }
  }
  EXPECT_GT(old, 0);
  EXPECT_GT(fresh, 0);
}

TEST(CheckpointFiles, RefuseEachFlippedBitByFileAndBlock) {
  SimulatedFiles files;
  write_checkpoint(files, 10, 2);
  write_checkpoint(files, 20, 2);
  const std::string folder = "run/" + folder_name(20) + "/";
  for (int r = 0; r < ranks; ++r) {
    auto& bytes = files.contents(folder + data_file_name(r));
    for (std::size_t i = 0; i < bytes.size(); i += 7) {
      bytes[i] ^= std::byte{1} << (i % 8);
      const Newest found = find_newest(files, "run");
      ASSERT_EQ(found.checkpoint->manifest().step, 10);
      ASSERT_EQ(found.refused.size(), 1u);
      ASSERT_THAT(found.refused[0].reason, testing::HasSubstr(data_file_name(r) + " = block "));
      ASSERT_THAT(found.refused[0].reason, testing::HasSubstr("CRC32C"));
      bytes[i] ^= std::byte{1} << (i % 8);
    }
    const auto whole = bytes;
    bytes.pop_back();
    EXPECT_THAT(find_newest(files, "run").refused.at(0).reason, testing::HasSubstr("bytes: expected block"));
    bytes = whole;
    files.remove(folder + data_file_name(r));
    EXPECT_THAT(find_newest(files, "run").refused.at(0).reason, testing::HasSubstr("missing"));
    const auto file = files.create(folder + data_file_name(r));
    file->write(whole);
  }
  auto& manifest = files.contents(folder + manifest_name);
  manifest[manifest.size() / 2] ^= std::byte{4};
  EXPECT_THAT(find_newest(files, "run").refused.at(0).reason, testing::HasSubstr("manifest.json"));
  manifest[manifest.size() / 2] ^= std::byte{4};
  EXPECT_EQ(newest_step(files), 20);
}

TEST(CheckpointFiles, KeepAsManyAsAsked) {
  SimulatedFiles files;
  for (const std::int64_t step : {10, 20, 30, 40, 50}) write_checkpoint(files, step, 3);
  EXPECT_THAT(steps_in(files, "run"), testing::ElementsAre(50, 40, 30));
  write_checkpoint(files, 35, 1);  // after a restart from an older one
  EXPECT_THAT(steps_in(files, "run"), testing::ElementsAre(50, 40, 35));
}

TEST(CheckpointFiles, RefuseTensorsOfAnotherNetwork) {
  SimulatedFiles files;
  write_checkpoint(files, 10, 1);
  const Checkpoint checkpoint = open_checkpoint(files, "run", 10);
  std::vector<std::byte> bytes(20);
  const auto refusal = [&](const std::string& name, ElementType type) -> std::string {
    try {
      checkpoint.read(name, type, bias_extents, views::whole(bias_extents), bytes);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("bias", ElementType::float32), "");
  EXPECT_THAT(refusal("bias.momentum", ElementType::float32), testing::HasSubstr("bias.momentum"));
  EXPECT_THAT(refusal("bias", ElementType::float64), testing::HasSubstr("expected float32"));
  EXPECT_THAT(refusal("weight", ElementType::float32), testing::HasSubstr("expected float32 6x1x3x3x4"));
}

TEST(CheckpointFiles, IgnoreOtherNames) {
  SimulatedFiles files;
  EXPECT_FALSE(find_newest(files, "run").checkpoint);
  write_checkpoint(files, 10, 1);
  for (const char* name : {"run/notes", "run/step-x", "run/step-12", "run/step-0000000000000012"})
    files.make_folder(name);
  EXPECT_THAT(steps_in(files, "run"), testing::ElementsAre(10));
  EXPECT_EQ(step_of(folder_name(1234567890123)), 1234567890123);
}

}  // namespace test_checkpoint_files
}  // namespace aloni::nn::checkpoint
