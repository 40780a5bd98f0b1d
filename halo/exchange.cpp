#include <aloni/halo/exchange.hpp>

#include <aloni/views/detail/instantiate.hpp>

#include <utility>
#include <variant>

namespace aloni::halo {

namespace {

// A function, because nvcc 13 takes no lambda with template parameters here.
template <class T, class Mem>
TransferItem<T, Mem> in_place(const TensorRef<T, Mem>& tensor, TransferPlan plan) {
  return TransferItem<T, Mem>::in_place(tensor, std::move(plan));
}

}  // namespace

template <class Exec>
Exchange<Exec>::Exchange(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<field_type> fields,
                         TransferOptions options) {
  constexpr const char* operation = "aloni::halo::Exchange";
  comm::collectively(comm, operation, [&] {
    for (const field_type& f : fields) detail::check_field(comm, operation, f.label, f.distribution, f.rank);
  });
  detail::check_agreement(comm, operation, fields.size());
  std::vector<AnyTransferItem<memory_space>> items;
  for (const field_type& f : fields) {
    detail::check_agreement(comm, operation, 2 * f.tensor.index() + (f.needed ? 1 : 0));
    const NeededBox needed = detail::needed_of(comm, f);
    detail::check_agreement(comm, operation, agreement_digest(f.distribution, f.distribution, needed, f.boundaries));
    std::visit(
        [&](const auto& tensor) {
          items.push_back(in_place(tensor, plan_halo(f.distribution, needed, f.boundaries, comm.rank())));
        },
        f.tensor);
  }
  transfer_ = Transfer<Exec>(comm, queue, std::move(items), std::move(options));
}

#define INSTANTIATE(Exec) template class Exchange<Exec>;
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo
