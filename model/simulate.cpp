#include <aloni/model/simulate.hpp>

#include <aloni/model/detail/step_walk.hpp>

namespace aloni::model {

RankTime& RankTime::operator+=(const RankTime& other) {
  kernels += other.kernels;
  copies += other.copies;
  waits += other.waits;
  return *this;
}

CommunicationTime& CommunicationTime::operator+=(const CommunicationTime& other) {
  halos += other.halos;
  redistributions += other.redistributions;
  sums += other.sums;
  return *this;
}

SimulatedStep simulate(const nn::NetworkDescription& network, const nn::NetworkPlan& layers, const Machine& machine,
                       const KernelTimes& kernels, const SimulationOptions& options) {
  const detail::PricedStep step(network, layers, machine, kernels, options);
  return step.walk(whole_classes(step));
}

}  // namespace aloni::model
