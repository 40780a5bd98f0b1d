#include <aloni/nn/kfac.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/local/gemm.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

namespace aloni::nn {

namespace detail {

/// Between a weight and a bias, and a matrix with the bias as last column.
template <class T>
struct WeightsAndBias {
  T *weight, *bias;  ///< bias: null without one
  T* matrix;
  Index columns;  ///< of the matrix
  T scale;
  bool to_matrix;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index row = i / columns, column = i % columns, weights = bias ? columns - 1 : columns;
    T& element = column < weights ? weight[row * weights + column] : bias[row];
    if (to_matrix) {
      matrix[i] = element;
    } else {
      element = scale * matrix[i];
    }
  }
};

template <class T>
struct InnerProduct {
  const T *a, *b;
  KOKKOS_FUNCTION void operator()(const Index i, double& sum) const {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
};

inline std::size_t square(Index order) { return static_cast<std::size_t>(order) * static_cast<std::size_t>(order); }

inline double trace(const std::vector<double>& matrix, Index order) {
  double sum = 0;
  for (Index i = 0; i < order; ++i) sum += matrix[static_cast<std::size_t>(i * order + i)];
  return sum;
}

inline std::vector<double> with_diagonal(std::vector<double> matrix, Index order, double summand) {
  for (Index i = 0; i < order; ++i) matrix[static_cast<std::size_t>(i * order + i)] += summand;
  return matrix;
}

}  // namespace detail

template <class T, class Exec>
Kfac<T, Exec>::Kfac(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
                    const std::vector<LayerSplit>& splits, const AllParameters& parameters, const KfacOptions& options)
    : comm_(comm),
      plan_(plan_kfac(network, splits, comm.size())),
      parameters_(parameters),
      options_(options),
      sums_(queue, plan_),
      host_sums_(Kokkos::create_mirror_view(sums_.values())) {
  check(options, "aloni::nn::Kfac");
  std::size_t end = 0, triangles = 0, largest = 0;
  places_.resize(plan_.layers.size());
  for (const KfacLayer& layer : plan_.layers) {
    names_.push_back(network.layers[static_cast<std::size_t>(layer.layer)].name);
    for (const Index order : {layer.columns, layer.rows})
      triangles += (detail::square(order) + static_cast<std::size_t>(order)) / 2;
    largest = std::max(largest, static_cast<std::size_t>(layer.rows * layer.columns));
  }
  packed_.resize(triangles);
  for (int rank = 0; rank < comm.size(); ++rank) {
    owners_begin_.push_back(end);
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
      const KfacLayer& layer = plan_.layers[i];
      if (layer.owner != rank) continue;
      places_[i] = end;
      end += static_cast<std::size_t>(layer.rows * layer.columns);
      if (rank != comm.rank()) continue;
      const auto factor = [&](Index order) {
        return Factor{
            .order = order,
            .average = Matrix(detail::square(order), 0.0),
            .inverse = Flat(Kokkos::view_alloc(queue.space(), "aloni::nn::kfac_inverse"), detail::square(order))};
      };
      owned_.push_back({.layer = i, .a = factor(layer.columns), .g = factor(layer.rows)});
    }
  }
  owners_begin_.push_back(end);
  directions_ = Flat(Kokkos::view_alloc(queue.space(), "aloni::nn::kfac_directions"), end);
  host_directions_ = Kokkos::create_mirror_view(directions_);
  gradient_ = Flat(Kokkos::view_alloc(queue.space(), "aloni::nn::kfac_gradient"), largest);
  product_ = Flat(Kokkos::view_alloc(queue.space(), "aloni::nn::kfac_product"), largest);
}

template <class T, class Exec>
auto Kfac<T, Exec>::begin(Index samples, std::int64_t update) -> Sums* {
  if ((update - 1) % options_.factors_every != 0) return nullptr;
  sums_.begin(samples);
  return &sums_;
}

template <class T, class Exec>
void Kfac<T, Exec>::precondition(const Queue<Exec>& queue, double learning_rate, std::int64_t update) {
  const ScopedRegion region("aloni::nn::Kfac::precondition");
  if (sums_.samples() > 0) sum_over_ranks(queue);
  if (averaged_ == 0)
    throw InvalidArgument("aloni::nn::Kfac::precondition", "update", std::to_string(update),
                          "a step before whose factors were recorded (Network::record_factors)");
  const bool first = inverted_ == 0;
  const bool submits = first || (update - 1) % options_.every == 0;
  if (submits) due_ = first ? update : update + options_.delay;
  const bool uses = due_ == update;
  if (submits || uses) {
    comm::collectively(comm_, "aloni::nn::Kfac::precondition", [&] {
      if (submits) submit();
      if (uses) use_next(queue);
    });
  }
  if (uses) due_ = 0, inverted_ = 1;
  // Only the owner computes V and the product, so they have the same bits everywhere.
  std::vector<double> products(plan_.layers.size(), 0.0);
  for (Owned& owned : owned_) products[owned.layer] = direction(queue.space(), owned);
  exchange_directions(queue);
  comm_.all_reduce(std::span(products), comm::Reduction::sum);
  double sum = 0;
  for (const double product : products) sum += product;
  const double divergence = learning_rate * learning_rate * sum;
  const bool clips = options_.kl_clip > 0 && divergence > options_.kl_clip;
  write_gradients(queue.space(), clips ? std::sqrt(options_.kl_clip / divergence) : 1.0);
}

// --- factors ---

template <class T, class Exec>
void Kfac<T, Exec>::sum_over_ranks(const Queue<Exec>& queue) {
  Kokkos::deep_copy(queue.space(), host_sums_, sums_.values());
  queue.fence("aloni::nn::Kfac: the factors of this rank are needed on the host");
  std::size_t to = 0;
  const auto each_triangle = [&](const auto& f) {
    to = 0;
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
      f(i, sums_.begin_of_a(i), plan_.layers[i].columns);
      f(i, sums_.begin_of_g(i), plan_.layers[i].rows);
    }
  };
  each_triangle([&](std::size_t, std::size_t begin, Index order) {
    for (Index row = 0; row < order; ++row)
      for (Index column = 0; column <= row; ++column)
        packed_[to++] = static_cast<double>(host_sums_(begin + static_cast<std::size_t>(row * order + column)));
  });
  comm_.all_reduce(std::span(packed_), comm::Reduction::sum);
  const auto count = static_cast<double>(++averaged_);
  const double decay = std::min(1 - 1 / count, options_.decay), samples = static_cast<double>(sums_.samples());
  auto owned = owned_.begin();
  each_triangle([&](std::size_t i, std::size_t begin, Index order) {
    const std::size_t from = to;
    to += (detail::square(order) + static_cast<std::size_t>(order)) / 2;
    if (owned == owned_.end() || owned->layer != i) return;
    const bool is_a = begin == sums_.begin_of_a(i);
    const double positions = is_a ? 1 : static_cast<double>(plan_.layers[i].positions);
    average(is_a ? owned->a : owned->g, packed_.data() + from, samples * positions, decay);
    if (!is_a) ++owned;
  });
  sums_.clear(queue.space());
}

template <class T, class Exec>
void Kfac<T, Exec>::average(Factor& factor, const double* sum, double divisor, double decay) const {
  const auto n = static_cast<std::size_t>(factor.order);
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t column = 0; column <= row; ++column) {
      double& value = factor.average[row * n + column];
      value = decay * value + (1 - decay) * (*sum++ / divisor);
      factor.average[column * n + row] = value;
    }
  }
}

template <class T, class Exec>
void Kfac<T, Exec>::submit() {
  for (Owned& owned : owned_) {
    const double a = detail::trace(owned.a.average, owned.a.order) / static_cast<double>(owned.a.order);
    const double g = detail::trace(owned.g.average, owned.g.order) / static_cast<double>(owned.g.order);
    if (!std::isfinite(a) || !std::isfinite(g))
      throw NotFinite("aloni::nn::Kfac", "factors of " + names_[owned.layer], "NaN or infinite",
                      "finite inputs and gradients: a smaller learning rate, or a larger damping");
    // Without inputs, or without gradients, there is nothing to balance.
    const double pi = a > 0 && g > 0 ? std::sqrt(a / g) : 1, root = std::sqrt(options_.damping);
    for (const auto& [factor, summand] : {std::pair(&owned.a, pi * root), std::pair(&owned.g, root / pi)}) {
      factor->next.clear();
      factor->pending = options_.solver(detail::with_diagonal(factor->average, factor->order, summand), factor->order);
    }
  }
}

template <class T, class Exec>
void Kfac<T, Exec>::fetch() {
  for (Owned& owned : owned_) {
    for (Factor* const factor : {&owned.a, &owned.g}) {
      if (!factor->pending.valid()) continue;
      factor->next = factor->pending.get();
      if (factor->next.size() != detail::square(factor->order))
        throw InvalidArgument("aloni::nn::Kfac", "elements of an inverse", std::to_string(factor->next.size()),
                              std::to_string(detail::square(factor->order)) + ", as the solver got");
    }
  }
}

template <class T, class Exec>
void Kfac<T, Exec>::use_next(const Queue<Exec>& queue) {
  fetch();
  for (Owned& owned : owned_) {
    for (Factor* const factor : {&owned.a, &owned.g}) {
      const auto host = Kokkos::create_mirror_view(factor->inverse);
      for (std::size_t i = 0; i < factor->next.size(); ++i) host(i) = static_cast<Parameter>(factor->next[i]);
      Kokkos::deep_copy(queue.space(), factor->inverse, host);
      queue.fence("aloni::nn::Kfac: the host's inverse is released");
      factor->next = {};
    }
  }
}

template <class T, class Exec>
void Kfac<T, Exec>::finish_pending() {
  comm::collectively(comm_, "aloni::nn::Kfac::finish_pending", [&] { fetch(); });
}

// --- directions ---

template <class T, class Exec>
double Kfac<T, Exec>::direction(const Exec& exec, Owned& owned) {
  const KfacLayer& layer = plan_.layers[owned.layer];
  const Index elements = layer.rows * layer.columns;
  using Ref = local::MatrixRef<Parameter>;
  using Const = local::MatrixRef<const Parameter>;
  Parameter* const v = directions_.data() + places_[owned.layer];
  Parameter* const bias = layer.bias ? parameters_.vector_gradient(parameters_.find(layer.layer, 1)).data() : nullptr;
  Kokkos::parallel_for("aloni::nn::kfac_gradient",
                       Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, elements),
                       detail::WeightsAndBias<Parameter>{parameters_.gradient(parameters_.find(layer.layer, 0)).data(),
                                                         bias, gradient_.data(), layer.columns, Parameter(1), true});
  const Index rows = layer.rows, columns = layer.columns;
  local::gemm<Parameter, Exec>(
      exec, local::Transpose::no, local::Transpose::no, Parameter(1), Const{owned.g.inverse.data(), rows, rows, rows},
      Const{gradient_.data(), rows, columns, columns}, Parameter(0), Ref{product_.data(), rows, columns, columns});
  local::gemm<Parameter, Exec>(
      exec, local::Transpose::no, local::Transpose::no, Parameter(1), Const{product_.data(), rows, columns, columns},
      Const{owned.a.inverse.data(), columns, columns, columns}, Parameter(0), Ref{v, rows, columns, columns});
  double product = 0;
  Kokkos::parallel_reduce("aloni::nn::kfac_product",
                          Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, elements),
                          detail::InnerProduct<Parameter>{v, gradient_.data()}, product);
  return product;
}

template <class T, class Exec>
void Kfac<T, Exec>::exchange_directions(const Queue<Exec>& queue) {
  if (comm_.size() == 1) return;
  const auto own = static_cast<std::size_t>(comm_.rank());
  const auto range = std::make_pair(owners_begin_[own], owners_begin_[own + 1]);
  Kokkos::deep_copy(queue.space(), Kokkos::subview(host_directions_, range), Kokkos::subview(directions_, range));
  queue.fence("aloni::nn::Kfac: the directions of this rank are needed on the host");
  std::vector<comm::Request> requests;
  for (int owner = 0; owner < comm_.size(); ++owner) {
    const std::size_t first = owners_begin_[static_cast<std::size_t>(owner)],
                      end = owners_begin_[static_cast<std::size_t>(owner) + 1];
    if (first == end) continue;
    requests.push_back(comm_.start(comm::Broadcast{std::span(host_directions_.data() + first, end - first), owner}));
  }
  comm_.wait(requests);
  Kokkos::deep_copy(queue.space(), directions_, host_directions_);
}

template <class T, class Exec>
void Kfac<T, Exec>::write_gradients(const Exec& exec, double scale) {
  for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
    const KfacLayer& layer = plan_.layers[i];
    Parameter* const bias = layer.bias ? parameters_.vector_gradient(parameters_.find(layer.layer, 1)).data() : nullptr;
    Kokkos::parallel_for("aloni::nn::kfac_write",
                         Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, layer.rows * layer.columns),
                         detail::WeightsAndBias<Parameter>{
                             parameters_.gradient(parameters_.find(layer.layer, 0)).data(), bias,
                             directions_.data() + places_[i], layer.columns, static_cast<Parameter>(scale), false});
  }
}

// --- checkpoints ---

template <class T, class Exec>
void Kfac<T, Exec>::archive_matrix(checkpoint::Archive& archive, const std::string& name, Index order,
                                   Matrix* values) const {
  const views::Extents extents{{1, 1, 1, order, order}};
  checkpoint::TensorSource tensor{name, ElementType::float64, extents, {}};
  tensor.blocks = comm_.size();  // every rank has other layers
  if (values) {
    values->resize(detail::square(order));
    tensor.kept = views::whole(extents);
    tensor.own = {views::whole(extents)};
  }
  archive.tensor(std::move(tensor), values ? std::as_writable_bytes(std::span(*values)).data() : nullptr);
}

template <class T, class Exec>
void Kfac<T, Exec>::archive(checkpoint::Archive& archive, const Queue<Exec>& queue) {
  archive.value("kfac.averaged", averaged_);
  archive.value("kfac.due", due_);
  archive.value("kfac.inverted", inverted_);
  auto owned = owned_.begin();
  for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
    const bool owns = owned != owned_.end() && owned->layer == i;
    for (const bool is_a : {true, false}) {
      Factor* const factor = !owns ? nullptr : is_a ? &owned->a : &owned->g;
      const Index order = is_a ? plan_.layers[i].columns : plan_.layers[i].rows;
      const std::string name = names_[i] + (is_a ? ".kfac_a" : ".kfac_g");
      archive_matrix(archive, name, order, factor ? &factor->average : nullptr);
      std::shared_ptr<Matrix> inverse;
      HostFlat host;
      if (factor) {
        host = Kokkos::create_mirror_view(factor->inverse);
        Kokkos::deep_copy(queue.space(), host, factor->inverse);
        queue.fence("aloni::nn::Kfac: the inverse is on the host");
        inverse = std::make_shared<Matrix>(host.data(), host.data() + host.extent(0));
        archive.keep(inverse);
      }
      archive_matrix(archive, name + "_inverse", order, inverse.get());
      if (factor && archive.loads()) {
        for (std::size_t k = 0; k < inverse->size(); ++k) host(k) = static_cast<Parameter>((*inverse)[k]);
        Kokkos::deep_copy(queue.space(), factor->inverse, host);
        queue.fence("aloni::nn::Kfac: the host's inverse is released");
      }
      if (due_ > 0) archive_matrix(archive, name + "_next", order, factor ? &factor->next : nullptr);
    }
    if (owns) ++owned;
  }
}

template <class T, class Exec>
Index Kfac<T, Exec>::bytes() const {
  std::size_t doubles = packed_.size(), values = directions_.size() + gradient_.size() + product_.size();
  for (const Owned& owned : owned_) {
    doubles += owned.a.average.size() + owned.g.average.size();
    values += owned.a.inverse.size() + owned.g.inverse.size();
  }
  if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible)
    values += host_sums_.size() + host_directions_.size();
  return sums_.bytes() + static_cast<Index>(doubles * sizeof(double) + values * sizeof(Parameter));
}

#define INSTANTIATE(T, Exec) template class Kfac<T, Exec>;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
