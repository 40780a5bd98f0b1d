#include <aloni/halo/exchange.hpp>

#include <aloni/views/detail/instantiate.hpp>

namespace aloni::halo {

template <class T, class Exec>
Exchange<T, Exec>::Exchange(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<field_type> fields,
                            TransferOptions options) {
  constexpr const char* operation = "aloni::halo::Exchange";
  comm::collectively(comm, operation, [&] {
    for (const field_type& f : fields) detail::check_field(comm, operation, f.label, f.distribution, f.rank);
  });
  detail::check_agreement(comm, operation, fields.size());
  std::vector<TransferItem<T, memory_space>> items;
  for (const field_type& f : fields) {
    detail::check_agreement(comm, operation, f.needed ? 1 : 0);
    const NeededBox needed = detail::needed_of(comm, f);
    detail::check_agreement(comm, operation, agreement_digest(f.distribution, f.distribution, needed, f.boundaries));
    items.push_back(TransferItem<T, memory_space>::in_place(
        f.tensor, plan_halo(f.distribution, needed, f.boundaries, comm.rank())));
  }
  transfer_ = Transfer<T, Exec>(comm, queue, std::move(items), std::move(options));
}

#define INSTANTIATE(T, Exec) template class Exchange<T, Exec>;
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo
