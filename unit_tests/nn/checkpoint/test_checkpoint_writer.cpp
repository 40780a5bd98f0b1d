// CheckpointWriter on several ranks, with a failure of each call on each rank.
#include "support/transport.hpp"
#include "training_of_images.hpp"

#include <aloni/nn/checkpoint/reader.hpp>
#include <aloni/nn/checkpoint/writer.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <support/failing_files.hpp>
#include <vector>

namespace aloni::nn::checkpoint {
namespace test_checkpoint_writer {

using aloni::test::FailingFiles;

const views::Extents extents{{6, 1, 1, 1, 50}};

/// A tensor that all ranks keep.
struct Memory {
  std::vector<double> values;
  std::vector<TensorSource> sources;

  explicit Memory(std::int64_t step) : values(static_cast<std::size_t>(extents.size())) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(step) + static_cast<double>(i);
    sources = {{"a",
                ElementType::float64,
                extents,
                views::whole(extents),
                {views::whole(extents)},
                1,
                std::as_bytes(std::span(values)).data()},
               {"b",
                ElementType::float64,
                extents,
                views::whole(extents),
                {views::whole(extents)},
                1,
                std::as_bytes(std::span(values)).data()}};
  }
};

void write(CheckpointWriter& writer, std::int64_t step) {
  Manifest head;
  head.step = step;
  Memory memory(step);
  writer.begin(head, memory.sources);
  std::ranges::fill(memory.values, -1);  // the writer has a copy
  writer.finish();
}

TEST(CheckpointWriter, LosesNothingOlderWhenOneCallFailsOnOneRank) {
  const auto comm = aloni::test::make_communicator();
  const nn::test::SharedFolder folder(comm);
  FailingFiles files;
  CheckpointWriter writer(comm, files, folder.path("checkpoints"), 1);
  write(writer, 1);
  EXPECT_EQ(writer.take_failure(), "");
  const int before = files.calls();
  write(writer, 2);
  const auto calls = comm.all_reduce(std::int64_t{files.calls() - before}, comm::Reduction::max);
  ASSERT_GE(calls, comm.size() == 1 ? 15 : 12);
  std::int64_t newest = 2, step = 2;
  int failures = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    for (int call = 1; call <= calls; ++call) {
      SCOPED_TRACE("call " + std::to_string(call) + " of rank " + std::to_string(rank));
      files.fail_at(comm.rank() == rank ? call : 0);
      write(writer, ++step);
      files.fail_at(0);
      const std::string failure = writer.take_failure();
      EXPECT_EQ(failure.empty(), writer.newest() == step);
      if (failure.empty()) newest = step;
      failures += !failure.empty();
      EXPECT_EQ(writer.newest(), newest);
      EXPECT_EQ(comm.all_reduce(std::int64_t{!failure.empty()}, comm::Reduction::min), !failure.empty());
      const Newest found = find_newest(comm, files, folder.path("checkpoints"));
      ASSERT_TRUE(found.checkpoint);
      // A failure after the renaming may leave the new one whole.
      ASSERT_GE(found.checkpoint->manifest().step, newest);
      std::vector<double> values(static_cast<std::size_t>(extents.size()));
      found.checkpoint->read("b", ElementType::float64, extents, views::whole(extents),
                             std::as_writable_bytes(std::span(values)));
      EXPECT_EQ(values.back(), static_cast<double>(found.checkpoint->manifest().step + extents.size() - 1));
    }
  }
  EXPECT_GE(failures, 5 * comm.size());
  write(writer, ++step);
  EXPECT_EQ(writer.newest(), step);
  if (comm.rank() == 0) {
    EXPECT_THAT(steps_in(files, folder.path("checkpoints")), testing::ElementsAre(step));
  }
}

}  // namespace test_checkpoint_writer
}  // namespace aloni::nn::checkpoint
