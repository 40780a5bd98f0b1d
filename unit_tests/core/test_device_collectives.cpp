// What a family does for the library of its devices: it finds failed operations while it makes progress, and ends all
// operations when a rank has failed. No stream then waits for ever.
#include <aloni/core/comm/device/device_collectives.hpp>

#include "support/transport.hpp"

#include <aloni/core/error.hpp>

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>

namespace test_device_collectives {

using namespace aloni::comm;
using Clock = std::chrono::steady_clock;

class Library final : public detail::DeviceCollectives {
 public:
  std::atomic<bool> fails{false};
  std::atomic<int> looks{0}, ends{0};

  std::string library() const override { return "library of the test"; }
  void* group_stream() override { return nullptr; }
  std::unique_ptr<detail::StreamEvent> make_event() override { return nullptr; }
  void submit_group(const Communicator&, std::span<const detail::DeviceMessage>,
                    std::span<const detail::DeviceMessage>) override {}
  void start_all_reduce(const Communicator&, void*, std::size_t, ElementType, Reduction, void*) override {}
  void finish(const Communicator& comm) override { comm.check_poison(); }
  void look() override {
    ++looks;
    if (fails) throw aloni::CommunicationError("aloni::test: library", "an operation", "failed", "success");
  }
  void end_all() noexcept override { ++ends; }
};

class DeviceCollectivesOfAFamily : public testing::Test {
 protected:
  DeviceCollectivesOfAFamily() { detail::set_device_collectives(comm, library); }

  /// The error of the first call that throws.
  std::string error_of_progress() const {
    for (const auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
      try {
        comm.progress();
        comm.check_poison();
      } catch (const aloni::Error& error) {
        return error.what();
      }
    }
    return "none";
  }

  Communicator comm = aloni::test::make_communicator();
  std::shared_ptr<Library> library = std::make_shared<Library>();
};

TEST_F(DeviceCollectivesOfAFamily, ShowTheirErrorsWhileTheLibraryMakesProgress) {
  const int last = comm.size() - 1;
  for (int i = 0; i < 1000; ++i) comm.progress();
  EXPECT_GT(library->looks, 0);
  library->fails = comm.rank() == last;
  const std::string error = error_of_progress();
  EXPECT_THAT(error, testing::HasSubstr("aloni::test: library"));
  EXPECT_THAT(error, testing::HasSubstr("failed"));
  EXPECT_EQ(library->ends, 1) << "no stream may wait for the failed operation";
}

TEST_F(DeviceCollectivesOfAFamily, EndWhenARankHasFailed) {
  EXPECT_EQ(library->ends, 0);
  if (comm.rank() == 0) comm.poison("a failure of the test");
  EXPECT_THAT(error_of_progress(), testing::HasSubstr("a failure of the test"));
  EXPECT_EQ(library->ends, 1);
  EXPECT_THROW(library->finish(comm), aloni::PeerFailed);
}

// The runtime does not keep a library alive: its owner is one communicator of the family.
TEST_F(DeviceCollectivesOfAFamily, MayEndBeforeTheFamily) {
  const std::weak_ptr<Library> watch = library;
  {
    const Communicator part = comm.split(0, comm.rank());
    detail::set_device_collectives(part, std::make_shared<Library>());
  }
  library = nullptr;
  detail::set_device_collectives(comm, nullptr);
  EXPECT_TRUE(watch.expired());
  for (int i = 0; i < 1000; ++i) comm.progress();
  comm.barrier();
}

}  // namespace test_device_collectives
