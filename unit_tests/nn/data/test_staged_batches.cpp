// Mini-batches that pass through two buffers in turn, on streams of copies and kernels that work late.
#include "../late_streams.hpp"

#include <aloni/nn/data/detail/staged_batches.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {
namespace test_staged_batches {

using detail::StagedBatches;
using test::LateStreams;
using test::random_order;

struct NoQueue {};
using Values = std::vector<int>;

/// A device whose copies and kernels run when the host waits, or at the end. `ignored`: a call that it leaves out.
class LateDevice {
 public:
  LateDevice(std::uint64_t seed, std::string ignored = "") : order_(random_order(seed)), ignored_(std::move(ignored)) {}

  template <class F>
  void submit(int stream, F f) {
    streams_.submit(stream, std::move(f));
  }
  void record(int stream, int point) { streams_.record(stream, point); }
  void await(int stream, int point) {
    if (ignored_ != (stream == StagedBatches::copies ? "copies await" : "kernels await")) streams_.await(stream, point);
  }
  void wait(int point) {
    waited.push_back(point);
    if (ignored_ != "host waits") streams_.run_until(point, order_);
  }
  void finish() { streams_.run(order_); }

  std::vector<int> waited;

 private:
  LateStreams<NoQueue> streams_{{}, 2};
  test::StreamChoice order_;
  std::string ignored_;
};

/// The batches as kernels of a device see them, with the given sizes.
std::vector<Values> load(LateDevice& device, const std::vector<std::size_t>& sizes) {
  std::array<Values, 2> pinned, memory;
  std::vector<Values> seen;
  StagedBatches batches;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Values values(sizes[i], static_cast<int>(i) + 1);
    const auto of = [](auto& buffers, int b) -> Values& { return buffers[static_cast<std::size_t>(b)]; };
    batches.put(
        device, [&](int b) { return of(pinned, b).size() < values.size(); },
        [&](int b) {
          if (of(pinned, b).size() < values.size()) {
            of(pinned, b).assign(values.size(), 0);
            of(memory, b).assign(values.size(), 0);
          }
          std::ranges::copy(values, of(pinned, b).begin());
        },
        [&, n = values.size()](int b, NoQueue) { std::copy_n(of(pinned, b).begin(), n, of(memory, b).begin()); },
        [&, n = values.size()](int b, NoQueue) {
          seen.emplace_back(of(memory, b).begin(), of(memory, b).begin() + static_cast<std::ptrdiff_t>(n));
        });
  }
  device.finish();
  return seen;
}

std::vector<Values> expected(const std::vector<std::size_t>& sizes) {
  std::vector<Values> all;
  for (std::size_t i = 0; i < sizes.size(); ++i) all.emplace_back(sizes[i], static_cast<int>(i) + 1);
  return all;
}

TEST(StagedBatches, ReachTheKernelsInOrder) {
  const std::vector<std::size_t> sizes{3, 3, 3, 2, 3, 5, 1, 4};
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    LateDevice device(seed);
    ASSERT_EQ(load(device, sizes), expected(sizes)) << "seed " << seed;
  }
}

TEST(StagedBatches, WaitOnlyForTheBatchBeforeTheLast) {
  LateDevice device(1);
  (void)load(device, {3, 3, 3, 3, 5});
  // Nothing for the first two; then the copy of the same buffer; its last kernel if the buffer must grow.
  EXPECT_EQ(device.waited,
            (std::vector<int>{StagedBatches::copied(0), StagedBatches::copied(1), StagedBatches::used(0)}));
}

TEST(StagedBatches, AreWrongWithoutAnyOneWait) {
  const std::vector<std::size_t> sizes{3, 3, 3, 3, 3, 3};
  for (const char* const ignored : {"host waits", "kernels await", "copies await"}) {
    int wrong = 0;
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      LateDevice device(seed, ignored);
      wrong += load(device, sizes) == expected(sizes) ? 0 : 1;
    }
    EXPECT_GT(wrong, 0) << ignored;
  }
}

}  // namespace test_staged_batches
}  // namespace aloni::nn
