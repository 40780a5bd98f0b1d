#include <aloni/halo/redistribution.hpp>

#include <aloni/views/detail/instantiate.hpp>

namespace aloni::halo {

template <class T, class Exec>
Redistribution<T, Exec>::Redistribution(const comm::Communicator& comm, const Queue<Exec>& queue,
                                        const field_type& source, const field_type& destination,
                                        TransferOptions options) {
  constexpr const char* operation = "aloni::halo::Redistribution";
  comm::collectively(comm, operation, [&] {
    for (const field_type* f : {&source, &destination})
      detail::check_field(comm, operation, f->label, f->distribution, f->rank);
  });
  detail::check_agreement(comm, operation, destination.needed ? 1 : 0);
  const NeededBox needed = detail::needed_of(comm, destination);
  detail::check_agreement(
      comm, operation, agreement_digest(source.distribution, destination.distribution, needed, destination.boundaries));
  auto plan =
      plan_redistribution(source.distribution, destination.distribution, needed, destination.boundaries, comm.rank());
  transfer_ = Transfer<T, Exec>(
      comm, queue, {TransferItem<T, memory_space>::between(source.tensor, destination.tensor, std::move(plan))},
      std::move(options));
}

#define INSTANTIATE(T, Exec) template class Redistribution<T, Exec>;
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo
