#pragma once
// Refill: takes the place of an exchange in the steps of a deep halo without exchange (halo/deep_halo.hpp). It fills
// the ghosts beyond the ends of the domain, and the ghosts of dimensions that are not split, from cells of this rank.
//
//   const Exchange<> exchange(comm, queue, {{u, boundaries}});
//   const Transfer<> refill = make_refill(comm, queue, deep, {{u, boundaries}});
//   (deep.exchange_due(n) ? exchange.start(queue) : refill.start(queue)).finish();
//
// Afterwards the ghost state is fresh, as after an exchange, also on ranks without ghosts to fill. All values that the
// next step reads agree with their owners. Ghosts further out keep old values.
#include <aloni/halo/deep_halo.hpp>
#include <aloni/halo/field.hpp>
#include <aloni/halo/transfer.hpp>

#include <vector>

namespace aloni::halo {

/// The refill of these fields. It uses the distribution and boundaries of each field, and the radius and number of
/// steps of `deep`. Collective. The returned transfer has no messages, and is not collective.
/// @pre every distribution spans the communicator; every View was made for this rank, and has the ghosts of its
/// DeepHalo
/// Throws InvalidArgument or Unsupported on the rank with the error, and PeerFailed on the other ranks.
template <class Exec>
Transfer<Exec> make_refill(const comm::Communicator& comm, const Queue<Exec>& queue, const DeepHalo& deep,
                           const std::vector<Field<typename Exec::memory_space>>& fields,
                           TransferOptions options = {.label = "refill"});

}  // namespace aloni::halo
