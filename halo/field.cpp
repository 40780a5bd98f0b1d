#include <aloni/halo/field.hpp>

#include <aloni/core/error.hpp>
#include <aloni/halo/detail/agreement.hpp>

#include <span>

namespace aloni::halo::detail {

std::vector<views::Box> gather_boxes(const comm::Communicator& comm, const views::Box& mine) {
  constexpr std::size_t numbers = 2 * views::num_dims;
  std::vector<std::int64_t> all(numbers * static_cast<std::size_t>(comm.size()), 0);
  const std::size_t at = numbers * static_cast<std::size_t>(comm.rank());
  for (std::size_t i = 0; i < views::num_dims; ++i) {
    all[at + 2 * i] = mine.lo[i];
    all[at + 2 * i + 1] = mine.hi[i];
  }
  comm.all_reduce(std::span(all), comm::Reduction::sum);
  std::vector<views::Box> boxes(static_cast<std::size_t>(comm.size()));
  for (std::size_t r = 0; r < boxes.size(); ++r)
    for (std::size_t i = 0; i < views::num_dims; ++i) {
      boxes[r].lo[i] = all[numbers * r + 2 * i];
      boxes[r].hi[i] = all[numbers * r + 2 * i + 1];
    }
  return boxes;
}

void check_agreement(const comm::Communicator& comm, const char* operation, std::uint64_t digest) {
  check_agreement(comm, operation, "arguments", digest,
                  "the same number and types of tensors, distributions, needed boxes, boundaries and methods on all "
                  "ranks");
}

void check_field(const comm::Communicator& comm, const char* operation, const std::string& label,
                 const views::Distribution& distribution, int rank) {
  if (distribution.ranks() != comm.size())
    throw InvalidArgument(operation, "distribution of \"" + label + "\"", to_string(distribution),
                          "a distribution over the " + std::to_string(comm.size()) + " ranks of the communicator");
  if (rank != comm.rank())
    throw InvalidArgument(operation, "rank of \"" + label + "\"", std::to_string(rank),
                          std::to_string(comm.rank()) + ", this rank's number in the communicator");
}

}  // namespace aloni::halo::detail
