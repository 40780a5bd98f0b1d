#include <aloni/model/tile_kernel.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <memory>
#include <string_view>
#include <system_error>
#include <unordered_map>

namespace aloni::model {

namespace {

using tasks::Kernel;

constexpr std::array tile_kernels{Kernel::potrf,    Kernel::getrf, Kernel::trsm,
                                  Kernel::trsm_row, Kernel::syrk,  Kernel::gemm};
constexpr std::array tile_types{nn::ElementType::float32, nn::ElementType::float64};
constexpr std::string_view key_begin = "tile ";
constexpr double interpolation_error = 0.1;

std::string prefix_of(Kernel kernel, nn::ElementType type) {
  return std::string(key_begin) + tasks::name(kernel) + " " + nn::name(type) + " ";
}

double element_bytes(nn::ElementType type) { return type == nn::ElementType::float64 ? 8 : 4; }

/// Reads "256x128x64". None for another text.
std::optional<std::array<Index, 3>> parse_shape(std::string_view text) {
  std::array<Index, 3> shape{};
  const char *at = text.data(), *const end = text.data() + text.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const auto [rest, error] = std::from_chars(at, end, shape[i]);
    if (error != std::errc() || shape[i] < 1 || (i < 2 ? rest == end || *rest != 'x' : rest != end)) return {};
    at = rest + 1;
  }
  return shape;
}

std::optional<TileKernel> parse_key(std::string_view key) {
  if (!key.starts_with(key_begin)) return {};
  for (const Kernel kernel : tile_kernels)
    for (const nn::ElementType type : tile_types) {
      const std::string prefix = prefix_of(kernel, type);
      if (!key.starts_with(prefix)) continue;
      if (const auto shape = parse_shape(key.substr(prefix.size())))
        return TileKernel{kernel, type, (*shape)[0], (*shape)[1], (*shape)[2]};
    }
  return {};
}

/// The rate of a kernel as a share of that of gemm, for the roofline: measured with tiles of 320 rows of double on one
/// core of an AMD EPYC with OpenBLAS 0.3.21 (tasks/kernel_time.hpp).
double share_of_gemm(Kernel kernel) {
  switch (kernel) {
    case Kernel::gemm:
      return 1;
    case Kernel::syrk:
      return 0.95;
    case Kernel::trsm:
      return 0.83;
    case Kernel::potrf:
      return 0.69;
    case Kernel::trsm_row:
      return 0.59;
    default:
      return 0.56;  // getrf
  }
}

}  // namespace

std::string key_of(const TileKernel& k) {
  return prefix_of(k.kernel, k.type) + std::to_string(k.rows) + "x" + std::to_string(k.columns) + "x" +
         std::to_string(k.inner);
}

double flops_of(const TileKernel& k) {
  const auto rows = static_cast<double>(k.rows), columns = static_cast<double>(k.columns),
             inner = static_cast<double>(k.inner);
  switch (k.kernel) {
    case Kernel::potrf:
      return columns * columns * columns / 3;
    case Kernel::getrf:
      return 2 * columns * columns * columns / 3;
    case Kernel::trsm:
      return rows * inner * inner;
    case Kernel::trsm_row:
      return columns * inner * inner;
    case Kernel::syrk:
      return columns * columns * inner;
    default:
      return 2 * rows * columns * inner;
  }
}

double bytes_of(const TileKernel& k) {
  const auto rows = static_cast<double>(k.rows), columns = static_cast<double>(k.columns),
             inner = static_cast<double>(k.inner);
  const double written = 2 * rows * columns;  // read before
  switch (k.kernel) {
    case Kernel::potrf:
    case Kernel::getrf:
      return element_bytes(k.type) * written;
    case Kernel::trsm:
    case Kernel::trsm_row:
      return element_bytes(k.type) * (written + inner * inner);
    case Kernel::syrk:
      return element_bytes(k.type) * (written + columns * inner);
    default:
      return element_bytes(k.type) * (written + (rows + columns) * inner);
  }
}

std::vector<TileKernel> kernels_of(const tasks::Task& task, const views::TileDistribution& tiles,
                                   nn::ElementType type) {
  const Index height = tiles.height(task.row), width = tiles.width(task.column);
  const Index diagonal = tiles.diagonal_row(task.column);
  // Rows of a tile below the diagonal block of its column.
  const Index below = height - width - (tiles.first_column(task.column) - tiles.first_row(diagonal));
  const auto with_rows_below = [&](const TileKernel& block, Kernel kernel) {
    std::vector<TileKernel> both{block};
    if (task.row == diagonal && below > 0) both.push_back({kernel, type, below, width, block.inner});
    return both;
  };
  switch (task.kernel) {
    case Kernel::potrf:
      return with_rows_below({Kernel::potrf, type, width, width, width}, Kernel::trsm);
    case Kernel::syrk:
      return with_rows_below({Kernel::syrk, type, width, width, tiles.width(task.step)}, Kernel::gemm);
    case Kernel::getrf:
      return {{Kernel::getrf, type, height, width, width}};
    case Kernel::trsm:
    case Kernel::trsm_row:
    case Kernel::gemm:
      return {{task.kernel, type, height, width, tiles.width(task.step)}};
    default:
      throw Unsupported("aloni::model::kernels_of", "task", to_string(task),
                        "a task of cholesky() or lu(); for other graphs write TasksOnRanks::seconds");
  }
}

TileKernelTimes::TileKernelTimes(const Machine& machine, int ranks_per_node, int workers)
    : machine_(&machine),
      busy_cores_(std::min(ranks_per_node * workers, std::max(1, machine.processor.cores_per_node))) {
  const MachineKernels check(machine, ranks_per_node, workers);
  const auto distance = [&](const KernelTable& table) {
    return std::abs(std::log(static_cast<double>(table.ranks_per_node * table.threads_per_rank) / busy_cores_));
  };
  for (const KernelTable& table : machine.kernels) {
    const auto first = table.times.lower_bound(std::string(key_begin));
    if (first == table.times.end() || !first->first.starts_with(key_begin)) continue;
    if (!table_ || distance(table) < distance(*table_)) table_ = &table;
  }
  if (!table_) return;
  for (const auto& [key, time] : table_->times)
    if (const auto kernel = parse_key(key); kernel && time.seconds > 0)
      rates_[{kernel->kernel, kernel->type}][flops_of(*kernel)] = flops_of(*kernel) / time.seconds;
}

Estimate TileKernelTimes::of(const TileKernel& kernel) const {
  const double flops = flops_of(kernel);
  if (flops <= 0) return {};
  if (table_) {
    if (const auto found = table_->times.find(key_of(kernel)); found != table_->times.end())
      return {found->second.seconds, KernelSource::measured, found->second.spread};
  }
  if (const auto found = rates_.find({kernel.kernel, kernel.type}); found != rates_.end()) {
    const Rates& rates = found->second;
    const auto above = rates.lower_bound(flops);
    double rate = 0;
    if (above == rates.end()) {
      rate = std::prev(above)->second;
    } else if (above == rates.begin()) {
      rate = above->second;
    } else {
      const auto [less, less_rate] = *std::prev(above);
      const double share = std::log(flops / less) / std::log(above->first / less);
      rate = less_rate + share * (above->second - less_rate);
    }
    return {flops / rate, KernelSource::measured, interpolation_error};
  }
  // A worker is one core: the bandwidth of the node is shared by all that compute.
  const KernelCall call{.kind = KernelKind::dense, .type = kernel.type, .flops = flops, .bytes = bytes_of(kernel)};
  const double seconds = roofline_seconds(*machine_, call, busy_cores_, 1) / share_of_gemm(kernel.kernel);
  return {machine_->processor.kernel_seconds + seconds, KernelSource::roofline, 0.4};
}

TasksOnRanks factorisation_on(const views::TileDistribution& tiles, nn::ElementType type,
                              const TileKernelTimes& kernels, int workers) {
  TasksOnRanks run{.ranks = tiles.ranks(), .workers = workers};
  run.owner = [tiles](const tasks::TileId& id) { return tiles.owner(id.tile()); };
  run.bytes = [tiles, type](const tasks::TileId& id) {
    return element_bytes(type) * static_cast<double>(tiles.elements(id.tile()));
  };
  // Few shapes, many tasks: each shape is priced once. Its name is the key.
  struct Shape {
    std::size_t operator()(const TileKernel& k) const {
      auto h = static_cast<std::size_t>(k.kernel);
      for (const Index n : {k.rows, k.columns, k.inner}) h = h * 0x9E3779B97F4A7C15u + static_cast<std::size_t>(n);
      return h;
    }
  };
  const auto known = std::make_shared<std::unordered_map<TileKernel, double, Shape>>();
  run.seconds = [tiles, type, &kernels, known](const tasks::Task& task) {
    double seconds = 0;
    for (const TileKernel& kernel : kernels_of(task, tiles, type)) {
      const auto [at, is_new] = known->try_emplace(kernel);
      if (is_new) at->second = kernels.of(kernel).seconds;
      seconds += at->second;
    }
    return seconds;
  };
  return run;
}

}  // namespace aloni::model
