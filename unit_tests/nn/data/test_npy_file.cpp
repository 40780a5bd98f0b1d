// A .npy file that all ranks write: the reader gets each element, and no failure of one rank harms an older file.
#include "support/shared_folder.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/data/npy.hpp>
#include <aloni/nn/data/npy_file.hpp>
#include <aloni/views/distribution.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>
#include <string>
#include <support/failing_files.hpp>
#include <vector>

namespace aloni::nn {
namespace test_npy_file {

using views::Box;
using views::Distribution;
using views::Extents;
using views::ProcessGrid;

/// 0, 1, 2, … by the position in the whole array.
std::vector<float> values_of(const Box& box, const Extents& all) {
  std::vector<float> values;
  if (box.empty()) return values;
  Box at = box;
  for (at.lo[0] = box.lo[0]; at.lo[0] < box.hi[0]; ++at.lo[0])
    for (at.lo[1] = box.lo[1]; at.lo[1] < box.hi[1]; ++at.lo[1])
      for (at.lo[2] = box.lo[2]; at.lo[2] < box.hi[2]; ++at.lo[2])
        for (at.lo[3] = box.lo[3]; at.lo[3] < box.hi[3]; ++at.lo[3])
          for (at.lo[4] = box.lo[4]; at.lo[4] < box.hi[4]; ++at.lo[4]) {
            Index position = 0;
            for (std::size_t d = 0; d < 5; ++d) position = position * all.values[d] + at.lo[d];
            values.push_back(static_cast<float>(position));
          }
  return values;
}

/// Collective. Writes the part of each rank, all samples at once.
void write(const comm::Communicator& comm, io::FileSystem& files, const std::string& path, const Extents& all, int rank,
           const std::string& grid) {
  const auto parts = Distribution::block(all, ProcessGrid::parse(grid), comm.size());
  NpyFile file(comm, files, path, all, rank);
  comm::collectively(comm, "write", [&] {
    const Box own = parts.owned(comm.rank());
    if (parts.is_first_copy(comm.rank())) file.write(own, values_of(own, all));
  });
  file.finish();
}

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(NpyFile, IsReadAsItWasWrittenByAnyRanks) {
  const auto comm = aloni::test::make_communicator();
  const aloni::test::SharedFolder folder(comm);
  const std::string p = std::to_string(comm.size());
  for (const auto& [all, rank] :
       {std::pair(Extents{{5, 1, 7, 6, 8}}, 2), {{{4, 6, 5, 5, 8}}, 3}, {{{9, 1, 1, 1, 8}}, 2}}) {
    for (const char* const dimension : {"n", "h", "w", "c", "d"}) {
      const std::string path = folder.path("y.npy"), grid = dimension + p;
      SCOPED_TRACE(to_string(all) + " " + grid);
      write(comm, io::real_file_system(), path, all, rank, grid);
      const auto array = open_npy(path);
      ASSERT_EQ(array->size(), all.values[0]);
      EXPECT_EQ(array->type(), StoredType::float32);
      Extents one = all;
      one.values[0] = 1;
      ASSERT_EQ(array->extents(), one);
      const Box sample = views::whole(one);
      std::vector<float> found(static_cast<std::size_t>(one.size()));
      for (Index n = 0; n < all.values[0]; ++n) {
        array->read(n, sample, std::as_writable_bytes(std::span(found)));
        Box part = sample;
        part.lo[0] = n;
        part.hi[0] = n + 1;
        ASSERT_EQ(found, values_of(part, all)) << "sample " << n;
      }
      comm.barrier();
    }
  }
}

TEST(NpyFile, OlderFilesStayWhenOneCallFailsOnOneRank) {
  const auto comm = aloni::test::make_communicator();
  const aloni::test::SharedFolder folder(comm);
  const Extents all{{4, 1, 4, 4, 1}};
  const std::string path = folder.path("y.npy"), grid = "n" + std::to_string(comm.size());
  int failures = 0;
  for (int fails = 0; fails < comm.size(); ++fails) {
    for (int call = 1;; ++call) {
      SCOPED_TRACE("call " + std::to_string(call) + " of rank " + std::to_string(fails));
      if (comm.rank() == 0) std::ofstream(path) << "old";
      comm.barrier();
      aloni::test::FailingFiles files;
      if (comm.rank() == fails) files.fail_at(call);
      bool failed = false;
      try {
        write(comm, files, path, all, 2, grid);
      } catch (const FileError& e) {
        EXPECT_EQ(comm.rank(), fails);
        EXPECT_EQ(e.argument(), path);
        failed = true;
      } catch (const PeerFailed&) {
        EXPECT_NE(comm.rank(), fails);
        failed = true;
      }
      comm.barrier();
      // Without a failed call, and after a failure to synchronise the folder, the new file has its name.
      const std::string text = text_of(path);
      const bool is_new = text.size() > 64;
      if (!failed) {
        EXPECT_TRUE(is_new);
      }
      if (!is_new) {
        EXPECT_EQ(text, "old");
      }
      if (comm.rank() == 0) {
        EXPECT_EQ(io::real_file_system().list(folder.path("")).size(), 1u);
      }
      failures += failed ? 1 : 0;
      comm.barrier();
      if (!failed) break;
    }
  }
  EXPECT_GE(failures, 5);
}

}  // namespace test_npy_file
}  // namespace aloni::nn
