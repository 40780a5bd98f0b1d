#pragma once
// Whether ghost values agree with the owned values of the other ranks. One state is shared by all handles of a
// tensor: the exchange sets it, kernels that change owned values mark it stale, debug builds refuse to hand out stale
// ghosts.

namespace aloni::views {

enum class GhostState { fresh, stale };

}  // namespace aloni::views
