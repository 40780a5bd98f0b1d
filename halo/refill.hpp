#pragma once
// What takes the place of an exchange in the steps of a deep halo that have none (halo/deep_halo.hpp): fills the ghosts
// beyond the ends of the domain, and those of dimensions that aren't split, from cells of the rank itself.
//
//   const Exchange<> exchange(comm, queue, {{u, boundaries}});
//   const Transfer<> refill = make_refill(comm, queue, deep, {{u, boundaries}});
//   (deep.exchange_due(n) ? exchange.start(queue) : refill.start(queue)).finish();
//
// Afterwards the ghost state is fresh, as after an exchange, also where there is nothing to fill: what the next step
// reads agrees with its owners. Ghosts further out are old.
#include <aloni/halo/deep_halo.hpp>
#include <aloni/halo/field.hpp>
#include <aloni/halo/transfer.hpp>

#include <vector>

namespace aloni::halo {

/// Collective; the transfer itself isn't, and has no messages. Of each field its own distribution and boundaries count, of `deep` the
/// radius and the number of steps.
/// @pre every distribution spans the communicator, every View was made for this rank, with room for the ghosts of such a DeepHalo.
/// Throws InvalidArgument and Unsupported on the rank that sees it and PeerFailed on the others.
template <class Exec>
Transfer<Exec> make_refill(const comm::Communicator& comm, const Queue<Exec>& queue, const DeepHalo& deep,
                           const std::vector<Field<typename Exec::memory_space>>& fields,
                           TransferOptions options = {.label = "refill"});

}  // namespace aloni::halo
