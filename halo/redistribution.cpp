#include <aloni/halo/redistribution.hpp>

#include <aloni/core/error.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <type_traits>
#include <utility>
#include <variant>

namespace aloni::halo {

namespace {

// A function, because nvcc 13 rejects a lambda with template parameters here.
template <class T, class Mem>
TransferItem<T, Mem> between(const TensorRef<T, Mem>& from, const TensorRef<T, Mem>& to, const TransferPlan& plan) {
  return TransferItem<T, Mem>::between(from, to, plan);
}

}  // namespace

template <class Exec>
Redistribution<Exec>::Redistribution(const comm::Communicator& comm, const Queue<Exec>& queue, const field_type& source,
                                     const field_type& destination, TransferOptions options) {
  constexpr const char* operation = "aloni::halo::Redistribution";
  comm::collectively(comm, operation, [&] {
    for (const field_type* f : {&source, &destination})
      detail::check_field(comm, operation, f->label, f->distribution, f->rank);
    if (source.tensor.index() != destination.tensor.index())
      throw InvalidArgument(operation, "destination \"" + destination.label + "\"", "of another type",
                            "the type of the source \"" + source.label + "\"");
  });
  detail::check_agreement(comm, operation, source.tensor.index());
  detail::check_agreement(comm, operation, destination.needed ? 1 : 0);
  const NeededBox needed = detail::needed_of(comm, destination);
  detail::check_agreement(
      comm, operation, agreement_digest(source.distribution, destination.distribution, needed, destination.boundaries));
  const auto plan =
      plan_redistribution(source.distribution, destination.distribution, needed, destination.boundaries, comm.rank());
  std::visit(
      [&](const auto& from) {
        const auto& to = std::get<std::decay_t<decltype(from)>>(destination.tensor);
        transfer_ = Transfer<Exec>(comm, queue, {between(from, to, plan)}, std::move(options));
      },
      source.tensor);
}

#define INSTANTIATE(Exec) template class Redistribution<Exec>;
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo
