#include <aloni/nn/detail/replicated.hpp>

#include <aloni/nn/layer.hpp>

#include <span>
#include <variant>

namespace aloni::nn::detail {

void add_to(comm::ReplicatedValues& values, const NetworkDescription& network) {
  values.add("network's spatial dimensions", network.spatial_rank);
  values.add("network's input", views::to_string(network.input));
  for (std::size_t i = 0; i < network.layers.size(); ++i)
    values.add("layer " + std::to_string(i + 1), to_string(network.layers[i]));
  values.add("loss", std::string(name(network.loss)));
  values.add("label smoothing", network.label_smoothing);
}

void add_to(comm::ReplicatedValues& values, const Strategy& strategy) {
  for (std::size_t i = 0; i < strategy.rules.size(); ++i) {
    const StrategyRule& rule = strategy.rules[i];
    values.add("rule " + std::to_string(i + 1) + " of the strategy",
               rule.pattern + " " + to_string(rule.split) + " " + std::string(name(rule.split.overlap)));
  }
  values.add("number of rules of the strategy", strategy.rules.size());
}

void add_to(comm::ReplicatedValues& values, const Optimiser& optimiser) {
  values.add("optimiser", std::string(name(kind_of(optimiser))));
  if (const auto* sgd = std::get_if<SgdOptions>(&optimiser)) {
    const auto& [learning_rate, momentum, weight_decay, nesterov] = *sgd;
    values.add("learning rate", learning_rate).add("momentum", momentum).add("weight decay", weight_decay);
    values.add("nesterov", nesterov);
  } else if (const auto* lars = std::get_if<LarsOptions>(&optimiser)) {
    const auto& [learning_rate, momentum, weight_decay, trust, epsilon] = *lars;
    values.add("learning rate", learning_rate).add("momentum", momentum).add("weight decay", weight_decay);
    values.add("trust", trust).add("epsilon", epsilon);
  } else {
    const auto& [learning_rate, beta1, beta2, epsilon, weight_decay, decay] = std::get<AdamOptions>(optimiser);
    values.add("learning rate", learning_rate).add("beta1", beta1).add("beta2", beta2).add("epsilon", epsilon);
    values.add("weight decay", weight_decay).add("decay", std::string(name(decay)));
  }
}

void add_to(comm::ReplicatedValues& values, const UpdateOptions& options) {
  const auto& [max_norm, loss_scaling] = options;
  values.add("max_norm", max_norm.value_or(0));
  const auto& [initial, growth, backoff, interval] = loss_scaling.value_or(LossScaling{.initial = 0});
  values.add("initial loss scale", initial).add("growth of the loss scale", growth);
  values.add("backoff of the loss scale", backoff).add("interval of the loss scale", interval);
}

void add_to(comm::ReplicatedValues& values, const LearningRate& rate) {
  const auto& [schedule, warm_up] = rate;
  values.add("schedule", std::string(name(schedule)));
  if (const auto* step = std::get_if<StepSchedule>(&schedule)) {
    const auto& [every, milestones, factor] = *step;
    values.add("schedule every", every).add("schedule factor", factor);
    values.add("schedule milestones", std::as_bytes(std::span(milestones)));
  } else if (const auto* cosine = std::get_if<CosineSchedule>(&schedule)) {
    values.add("schedule lowest", cosine->lowest);
  } else if (const auto* plateau = std::get_if<PlateauSchedule>(&schedule)) {
    const auto& [factor, patience, threshold, lowest] = *plateau;
    values.add("schedule factor", factor).add("schedule patience", patience);
    values.add("schedule threshold", threshold).add("schedule lowest", lowest);
  }
  values.add("warm-up", warm_up);
}

void add_to(comm::ReplicatedValues& values, const EarlyStop& stop) {
  const auto& [patience, least_improvement] = stop;
  values.add("early stop", patience).add("early stop's least improvement", least_improvement);
}

void add_to(comm::ReplicatedValues& values, const std::string& name, const MeasuredImplementations& measured) {
  const std::string text = measured.text();
  values.add(name + ": problems", measured.size());
  values.add(name + ": times", std::as_bytes(std::span(text)));
}

void add_to(comm::ReplicatedValues& values, const std::string& name, const std::optional<WorkPerCopiedByte>& work) {
  const auto& [flops, flops_16_bit, traffic] = work.value_or(WorkPerCopiedByte{-1, -1, -1});
  values.add(name + ".flops", flops).add(name + ".flops_16_bit", flops_16_bit).add(name + ".traffic", traffic);
}

void add_to(comm::ReplicatedValues& values, const std::string& set, const LabelledImages& images) {
  values.add(set + "'s image", views::to_string(images.image));
  values.add(set + "'s images", images.size());
  values.add(set + "'s classes", images.classes);
  values.add(set + "'s scale", images.scale);
  values.add(set + "'s mean", images.mean);
  values.add(set + "'s deviation", images.deviation);
  values.add(set + "'s labels", std::as_bytes(std::span(images.labels)));
  values.add(set + "'s pixels", std::as_bytes(std::span(images.pixels)));
}

void add_to(comm::ReplicatedValues& values, const std::string& name, const Dataset& set) {
  values.add(name + "'s samples", set.size());
  values.add(name + "'s target kind", std::string(nn::name(set.target_kind)));
  values.add(name + "'s classes", set.classes);
  values.add(name + "'s scale", set.normalisation.scale);
  values.add(name + "'s mean", std::as_bytes(std::span(set.normalisation.mean)));
  values.add(name + "'s deviation", std::as_bytes(std::span(set.normalisation.deviation)));
  const bool labels = set.target_kind != TargetKind::elements;
  if (set.targets) values.add(name + (labels ? "'s labels" : "'s targets"), set.targets->fingerprint());
  if (set.inputs) values.add(name + "'s inputs", set.inputs->fingerprint());
}

}  // namespace aloni::nn::detail
