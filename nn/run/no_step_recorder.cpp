// Builds without the graphs of a device.
#include <aloni/nn/step_recorder.hpp>
#include <aloni/views/detail/instantiate.hpp>

namespace aloni::nn {

template <class Exec>
std::unique_ptr<StepRecorder<Exec>> make_step_recorder() {
  return nullptr;
}

#define INSTANTIATE(Exec) template std::unique_ptr<StepRecorder<Exec>> make_step_recorder<Exec>();
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
