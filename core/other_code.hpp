#pragma once
// Code that drives other code from the caches of a core.
//
// A kernel that is repeated alone finds its instructions and branches in the core's caches and predictors. In a step
// dozens of other kernels run before it runs again. For kernels of a few microseconds the difference was up to a third
// of their time, in a few runs on a busy machine. run_other_code() before each repetition makes it smaller.

namespace aloni {

/// Runs 2,048 small functions with two branches each: about 200 KB of code, in about 50 µs.
void run_other_code();

}  // namespace aloni
