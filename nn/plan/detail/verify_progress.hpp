#pragma once
// Proves that no rank waits forever, in every order of schedule() (nn/step_graph.hpp) that a rank takes.
//
// The check runs the lists of all ranks together. Each communication is a rendezvous: a rank goes on only when all its
// partners have come to the same communication. Partners are the ranks with which it exchanges a message, or the
// members of its sum. If all ranks come to the end, the order of the rendezvous is one order of all communication. Each
// rank's list agrees with it.
//
// That is enough for every other order. schedule() starts communication in the order of the list, and starting does not
// wait. It finishes transfers in the order of the list, and waits for a sum only after it has started all that comes
// before. Suppose that ranks wait forever. Of all that they wait for, take the communication that comes first in the
// common order. A rank that takes part in it and has not started it waits for something that comes earlier in its list:
// a contradiction. A rank that has started but not finished it has nothing earlier to wait for, so it finishes it.
// Kernels wait only for nodes before them in the list.
#include <aloni/nn/plan/step_plan.hpp>

#include <span>

namespace aloni::nn::detail {

/// Throws Found with the nodes and ranks of a circle, or with the rank that does not take part.
/// @pre plans[r].rank == r
void check_progress(std::span<const StepPlan> plans);

}  // namespace aloni::nn::detail
