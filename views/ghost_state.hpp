#pragma once
// Whether ghost values agree with their owners. All handles of a tensor share one state. A halo exchange makes it
// fresh; code that changes owned values must mark it stale. Builds with debug checks refuse access to stale ghosts.

namespace aloni::views {

enum class GhostState { fresh, stale };

}  // namespace aloni::views
