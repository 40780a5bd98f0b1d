// The guard must report each forbidden action, and must not report allowed actions.
#include <support/fence_guard.hpp>

#include <aloni/core/profiling.hpp>
#include <aloni/core/queue.hpp>

#include <gtest/gtest.h>

#include <string>

namespace aloni_test {

using View = Kokkos::View<double*>;

// nvcc does not accept a kernel in the body of a test, which is a private function.
void add_one(const Kokkos::DefaultExecutionSpace& space, const std::string& label, const View& view) {
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<>(space, 0, view.extent_int(0)), KOKKOS_LAMBDA(int i) { view(i) += 1; });
}

double sum(const Kokkos::DefaultExecutionSpace& space, const View& view) {
  double result = 0;
  Kokkos::parallel_reduce(
      "aloni::test::sum", Kokkos::RangePolicy<>(space, 0, view.extent_int(0)),
      KOKKOS_LAMBDA(int i, double& partial) { partial += view(i); }, result);
  return result;
}

}  // namespace aloni_test

namespace {

using aloni_test::View;

class FenceGuardTest : public testing::Test {
 protected:
  aloni::Queue<> queue;
  View view{"aloni::test::view", 100}, other{"aloni::test::other", 100};
  aloni::testing::FenceGuard guard;

  /// The guard's report about f().
  template <class F>
  std::string watch(F&& f) {
    guard.arm();
    f();
    guard.disarm();
    return guard.report();
  }
};

TEST_F(FenceGuardTest, AllowsTheActionsOfAStep) {
  (void)aloni_test::sum(queue.space(), view);  // Kokkos allocates its scratch memory at the first use
  EXPECT_EQ(watch([&] {
              const aloni::ScopedRegion region("aloni::test::step");
              aloni_test::add_one(queue.space(), "aloni::test::add_one", view);
              Kokkos::deep_copy(queue.space(), other, view);
              (void)aloni_test::sum(queue.space(), view);
              queue.fence("aloni::test::step: the host reads the result");
            }),
            "");
  EXPECT_GE(guard.kernels(), 2);
  EXPECT_GE(guard.fences(), 1);
}

TEST_F(FenceGuardTest, ReportsAGlobalFence) {
  EXPECT_EQ(watch([] { Kokkos::fence("aloni::test: all queues"); }).find("global fence: \"aloni::test: all queues\""),
            0u);
  EXPECT_NE(watch([] { Kokkos::fence(); }).find("global fence"), std::string::npos);
}

TEST_F(FenceGuardTest, ReportsACopyWithoutAnInstance) {
  EXPECT_NE(watch([&] { Kokkos::deep_copy(other, view); }).find("global fence"), std::string::npos);
}

TEST_F(FenceGuardTest, ReportsAFenceWithoutAName) {
  EXPECT_NE(watch([&] { queue.space().fence(); }).find("unnamed fence"), std::string::npos);
  EXPECT_NE(watch([&] { queue.fence(""); }).find("unnamed fence"), std::string::npos);
}

TEST_F(FenceGuardTest, ReportsAFenceWithoutAReason) {
  EXPECT_NE(watch([&] { queue.fence("aloni::test"); }).find("empty reason"), std::string::npos);
  EXPECT_NE(watch([&] { queue.fence("aloni::test: "); }).find("empty reason"), std::string::npos);
}

TEST_F(FenceGuardTest, ReportsAFenceWithoutTheNameOfTheLibrary) {
  EXPECT_NE(watch([&] { queue.fence("just in case"); }).find("foreign fence: \"just in case\""), std::string::npos);
}

TEST_F(FenceGuardTest, ReportsAnAllocation) {
  EXPECT_NE(watch([&] {
              View inside(Kokkos::view_alloc(queue.space(), "aloni::test::inside"), 10);
            }).find("allocation: \"aloni::test::inside\""),
            std::string::npos);
}

TEST_F(FenceGuardTest, ReportsAKernelWithoutALabelOfTheLibrary) {
  EXPECT_NE(watch([&] { aloni_test::add_one(queue.space(), "add_one", view); }).find("unlabelled kernel: \"add_one\""),
            std::string::npos);
  EXPECT_NE(watch([&] { aloni_test::add_one(queue.space(), "", view); }).find("unlabelled kernel"), std::string::npos);
}

TEST_F(FenceGuardTest, ReportsNothingWhileDisarmedAndStartsAnewWhenArmed) {
  Kokkos::fence();
  EXPECT_NE(watch([] { Kokkos::fence(); }), "");
  Kokkos::fence();
  const int before = guard.violations();
  Kokkos::fence();
  EXPECT_EQ(guard.violations(), before);
  EXPECT_EQ(watch([] {}), "");
}

}  // namespace
