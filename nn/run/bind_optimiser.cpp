#include <aloni/core/error.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/run/binder.hpp>

#include <cstddef>
#include <string>

namespace aloni::nn {

/// Parameters has the tensors of a segment in one flat block, so that the update is one kernel.
template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan&, const OptimiserWork& work) -> Kernel {
  const auto segment = static_cast<std::size_t>(work.segment);
  const bool fits = parameters_ && parameters_->trains() && parameters_->optimiser() == work.kind &&
                    segment < parameters_->segments().size() &&
                    static_cast<Index>(parameters_->segments()[segment].values.extent(0)) == work.elements;
  if (!fits) {
    throw InvalidArgument("aloni::nn::Binder::bind", "parameters", "made for another optimiser or another split",
                          std::string("parameters made for ") + name(work.kind) + " and the split of the plan");
  }
  return [this, segment](const Exec& exec) { parameters_->update_segment(exec, segment, optimiser_, update_number_); };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan&, const AccumulationWork& work) -> Kernel {
  const auto segment = static_cast<std::size_t>(work.segment);
  const auto end = static_cast<std::size_t>(work.first + work.elements);
  const bool fits = parameters_ && parameters_->gradient_sum() && segment < parameters_->segments().size() &&
                    end <= parameters_->segments()[segment].gradients.extent(0);
  if (!fits) {
    throw InvalidArgument("aloni::nn::Binder::bind", "parameters", "made for another use or another split",
                          "parameters made for ParameterUse::accumulation and the split of the plan");
  }
  return [this, part = GradientRange{segment, work.first, work.elements, work.with_loss}](const Exec& exec) {
    parameters_->gradient_sum()->run(exec, part, parameters_->segments()[part.segment].gradients);
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan&, const NormWork& work) -> Kernel {
  if (!parameters_ || !parameters_->norms()) {
    throw InvalidArgument("aloni::nn::Binder::bind", "parameters", "made without norms",
                          "parameters made for LARS or with UpdateOptions, as the plan");
  }
  if (work.stage == NormStage::factors)
    return
        [this](const Exec& exec) { parameters_->norms()->find_factors(exec, optimiser_, parameters_->loss_scale()); };
  return [this, segment = static_cast<std::size_t>(work.segment)](const Exec& exec) {
    parameters_->sum_squares(exec, segment);
  };
}

#define INSTANTIATE(T, Exec)                                                               \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const AccumulationWork&)->Kernel; \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const NormWork&)->Kernel;         \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const OptimiserWork&)->Kernel;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
