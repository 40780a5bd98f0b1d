#include <aloni/core/error.hpp>
#include <aloni/model/tile_kernel.hpp>
#include <aloni/tasks/kernel_time.hpp>
#include <aloni/tools/kernel_calibration.hpp>
#include <aloni/tools/tile_calibration.hpp>
#include <aloni/tools/together.hpp>

#include <cstddef>
#include <string>

namespace aloni::tools {

namespace {

constexpr double seconds_per_kernel = 0.1;

model::MeasuredKernel measure_tile(const comm::Communicator& comm, const model::TileKernel& kernel, int workers) {
  const tasks::KernelShape shape{kernel.rows, kernel.columns, kernel.inner};
  const std::vector<double> times = comm::collectively(comm, "aloni calibrate --tiles", [&] {
    return kernel.type == nn::ElementType::float64
               ? tasks::kernel_seconds<double>(kernel.kernel, shape, workers, seconds_per_kernel)
               : tasks::kernel_seconds<float>(kernel.kernel, shape, workers, seconds_per_kernel);
  });
  const std::size_t n = times.size();
  const double median = times[n / 2];
  const auto mean = [&](double value) { return comm.all_reduce(value, comm::Reduction::sum) / comm.size(); };
  return {.seconds = mean(median),
          .spread = mean((times[n * 3 / 4] - times[n / 4]) / (2 * median)),
          .runs = static_cast<int>(mean(static_cast<double>(n)))};
}

}  // namespace

void check_tiles_can_be_measured() {
  try {
    tasks::kernel_seconds<double>(tasks::Kernel::gemm, {1, 1, 1}, 1, 0);
  } catch (const Unsupported&) {
    refuse("--tiles", "given", "a build with aloni_ENABLE_LAPACK=ON");
  }
}

void add_tile_kernels(const comm::Communicator& comm, model::Machine& machine, const std::vector<std::int64_t>& tiles) {
  using tasks::Kernel;
  model::KernelTable& table = table_of(machine);
  for (const std::int64_t rows : tiles)
    for (const nn::ElementType type : {nn::ElementType::float32, nn::ElementType::float64})
      for (const Kernel kernel :
           {Kernel::potrf, Kernel::getrf, Kernel::trsm, Kernel::trsm_row, Kernel::syrk, Kernel::gemm}) {
        const model::TileKernel tile{kernel, type, rows, rows, rows};
        table.times[key_of(tile)] = measure_tile(comm, tile, machine.threads_per_rank);
      }
}

}  // namespace aloni::tools
