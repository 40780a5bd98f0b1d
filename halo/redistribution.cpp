#include <aloni/halo/redistribution.hpp>

#include <aloni/core/error.hpp>
#include <aloni/views/detail/instantiate.hpp>

namespace aloni::halo {

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
      [&]<class T>(const TensorRef<T, memory_space>& from) {
        const auto& to = std::get<TensorRef<T, memory_space>>(destination.tensor);
        transfer_ =
            Transfer<Exec>(comm, queue, {TransferItem<T, memory_space>::between(from, to, plan)}, std::move(options));
      },
      source.tensor);
}

#define INSTANTIATE(Exec) template class Redistribution<Exec>;
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo
