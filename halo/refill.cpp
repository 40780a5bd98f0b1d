#include <aloni/halo/refill.hpp>

#include <aloni/views/detail/instantiate.hpp>

#include <utility>
#include <variant>

namespace aloni::halo {

namespace {

// A function, because nvcc 13 rejects a lambda with template parameters here.
template <class T, class Mem>
AnyTransferItem<Mem> in_place(const TensorRef<T, Mem>& tensor, TransferPlan plan) {
  return TransferItem<T, Mem>::in_place(tensor, std::move(plan));
}

}  // namespace

template <class Exec>
Transfer<Exec> make_refill(const comm::Communicator& comm, const Queue<Exec>& queue, const DeepHalo& deep,
                           const std::vector<Field<typename Exec::memory_space>>& fields, TransferOptions options) {
  constexpr const char* operation = "aloni::halo::make_refill";
  std::vector<AnyTransferItem<typename Exec::memory_space>> items;
  comm::collectively(comm, operation, [&] {
    for (const auto& f : fields) {
      detail::check_field(comm, operation, f.label, f.distribution, f.rank);
      const DeepHalo own(f.distribution, f.rank, deep.radius(), deep.steps(), f.boundaries);
      std::visit([&](const auto& tensor) { items.push_back(in_place(tensor, own.refill())); }, f.tensor);
    }
  });
  return Transfer<Exec>(comm, queue, std::move(items), std::move(options));
}

#define INSTANTIATE(Exec)                                                                             \
  template Transfer<Exec> make_refill(const comm::Communicator&, const Queue<Exec>&, const DeepHalo&, \
                                      const std::vector<Field<typename Exec::memory_space>>&, TransferOptions);
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo
