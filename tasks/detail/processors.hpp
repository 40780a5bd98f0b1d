#pragma once
// The processors on which threads of this process may run.
//
// A thread inherits the processors of the thread that starts it. With OMP_PROC_BIND the main thread may use one
// processor only, so workers that it starts would share this one. Other threads of OpenMP have the other processors.
#include <vector>

namespace aloni::tasks::detail {

/// The processors that at least one thread of this process may use, ascending.
std::vector<int> processors_of_process();

/// Lets the calling thread use all of the processors. Does nothing if the system has no function for it, or refuses.
void use_processors(const std::vector<int>& processors);

}  // namespace aloni::tasks::detail
