#pragma once
// The constants of the values that one rank has for another one: those of the links, by the fit of their method.
// Private to model/.
#include <aloni/model/machine.hpp>
#include <aloni/model/transfer_fit.hpp>

namespace aloni::model::detail {

struct ParcelCosts {
  LinkCosts link, copy;  ///< between the ranks, and within the memory of each
  double seconds_per_call = 0;
  bool fitted = false;
};

/// @pre can_take(method, link)
ParcelCosts parcel_costs(const Machine& machine, TransferMethod method, LinkKind link, double bytes,
                         bool shared_data = false);

}  // namespace aloni::model::detail
