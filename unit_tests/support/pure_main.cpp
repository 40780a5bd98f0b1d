// The main of tests that use neither MPI nor Kokkos.
#include <support/test_files.hpp>

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return aloni::test::choose_test_files(argc, argv) ? RUN_ALL_TESTS() : 2;
}
