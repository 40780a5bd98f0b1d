// The state of a training in checkpoints: what is saved, and how a training resumes.
#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/checkpoint/archive_parameters.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/detail/replicated.hpp>
#include <aloni/nn/train/training.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

namespace aloni::nn {

namespace {

std::string checksum_of(const NetworkDescription& network) {
  comm::ReplicatedValues values;
  detail::add_to(values, network);
  std::string text;
  for (const auto& value : values.values()) text += value.name + " = " + value.text + "\n";
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", comm::detail::crc32c(text.data(), text.size()));
  return digits;
}

/// NaN if there is no such metric.
double value_of(const std::vector<Metric>& metrics, const std::string& name) {
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  return found == metrics.end() ? std::nan("") : found->value;
}

}  // namespace

template <class T>
bool Training<T>::resume() {
  if (options_.checkpoint.folder.empty()) return false;
  checkpoints_.emplace(comm_, options_.checkpoint);
  const auto found = checkpoints_->find();
  if (!found) return false;
  comm::collectively(comm_, "aloni::nn::train", [&] {
    checkpoint::Loader loader(*found);
    archive(loader);
  });
  if (progress_.steps > total_steps_)
    throw InvalidArgument("aloni::nn::train", "total number of steps", std::to_string(total_steps_),
                          "at least " + std::to_string(progress_.steps) + ", the steps of " + found->folder());
  // The last epoch may have been incomplete, and may go on now.
  report_.epochs.resize(std::min(report_.epochs.size(), static_cast<std::size_t>(progress_.steps / steps_per_epoch_)));
  report_.resumed_at = progress_.steps;
  timed_ = TimedSteps(options_.timed_steps, total_steps_, progress_.steps);
  return true;
}

template <class T>
bool Training<T>::save_if_due() {
  if (!checkpoints_) return false;
  const bool is_last = progress_.steps == total_steps_ || stopped_early();
  const bool stops = checkpoints_->after_step(progress_.steps, is_last, [&](checkpoint::Archive& a) {
    networks_.of(micro_).synchronise_statistics(queue_);
    if (kfac_) kfac_->finish_pending();
    archive(a);
  });
  report_.stopped = stops && !is_last;
  return stops;
}

/// The copy of this rank's blocks. On devices also a copy of all that the rank keeps, from which the blocks are taken.
template <class T>
Index Training<T>::checkpoint_bytes() {
  if (!checkpoints_) return 0;
  checkpoint::Saver saver;
  archive(saver);
  Index bytes = checkpoint::part_bytes(saver.tensors(), comm_.rank(), comm_.size());
  if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible)
    for (const checkpoint::TensorSource& t : saver.tensors()) bytes += t.kept.size() * bytes_of(t.type);
  return bytes;
}

template <class T>
void Training<T>::archive_loss_scale(checkpoint::Archive& a) {
  LossScale scale = parameters_.loss_scale_state();
  a.value("loss_scale.value", scale.value);
  a.value("loss_scale.updates", scale.updates);
  a.value("loss_scale.skipped", scale.skipped);
  a.value("loss_scale.skipped_in_all", scale.skipped_in_all);
  parameters_.set_loss_scale_state(scale);
}

template <class T>
void Training<T>::archive(checkpoint::Archive& a) {
  a.expect("network", checksum_of(description_));
  a.expect("parameter type", detail::element_name<Parameter>());
  a.expect("optimiser", kfac_ ? "kfac" : name(kind_of(options_.optimiser)));
  a.expect("average", average_ ? "kept" : "none");
  a.expect("batch", std::to_string(batch_));
  a.expect("accumulate", std::to_string(options_.accumulate));
  a.expect("seed", std::to_string(options_.seed));
  a.expect("shift", std::to_string(options_.shift));
  a.expect("flip", options_.flip ? "true" : "false");
  a.expect("brightness", std::to_string(options_.brightness));
  a.expect("contrast", std::to_string(options_.contrast));
  if (const auto samples = source_.set_size()) a.expect("samples", std::to_string(*samples));
  a.value("step", progress_.steps);
  a.value("updates", progress_.updates);
  a.value("schedule.factor", plateau_.factor);
  a.value("schedule.best", plateau_.best);
  a.value("schedule.bad", plateau_.bad);
  a.value("early_stop.best", early_stop_.best);
  a.value("early_stop.bad", early_stop_.bad);
  a.value("early_stop.ended", ended_);
  if (options_.update.loss_scaling) archive_loss_scale(a);
  for (const Index samples : {micro_, source_.size() % micro_})
    if (samples > 0) networks_.archive(a, samples);
  checkpoint::archive_parameters(a, queue_, description_, parameters_);
  if (average_) checkpoint::archive_flats(a, queue_, parameters_, average_->averages(), ".average");

  if (kfac_) kfac_->archive(a, queue_);

  a.values("losses", report_.losses);
  epochs_saved_ = {};
  for (const EpochReport& epoch : report_.epochs) {
    epochs_saved_.losses.push_back(epoch.loss);
    epochs_saved_.test_accuracies.push_back(epoch.test_accuracy.value_or(std::nan("")));
    epochs_saved_.test_losses.push_back(epoch.test_loss.value_or(std::nan("")));
  }
  auto& [losses, accuracies, test_losses, metrics] = epochs_saved_;
  a.values("epochs.loss", epochs_saved_.losses);
  a.values("epochs.test_accuracy", epochs_saved_.test_accuracies);
  a.values("epochs.test_loss", epochs_saved_.test_losses);
  const Index channels = infer_extents(description_, 1).back()[views::Dim::channel];
  for (const std::string& name : metric_names(description_.loss, channels)) {
    std::vector<double>& values = metrics[name];
    for (const EpochReport& epoch : report_.epochs) values.push_back(value_of(epoch.test_metrics, name));
    a.values("epochs.test_" + name, values);
  }
  if (!a.loads()) return;
  if (std::ssize(report_.losses) != progress_.steps || losses.size() != accuracies.size() ||
      losses.size() != test_losses.size()) {
    throw InvalidArgument("aloni::nn::train", "losses of the checkpoint", std::to_string(report_.losses.size()),
                          std::to_string(progress_.steps) + ", one per step");
  }
  const auto present = [](double value) { return std::isnan(value) ? std::nullopt : std::optional(value); };
  report_.epochs.clear();
  for (std::size_t e = 0; e < losses.size(); ++e) {
    report_.epochs.push_back({losses[e], present(accuracies[e]), present(test_losses[e])});
    for (const auto& [name, values] : metrics)
      if (e < values.size() && !std::isnan(values[e])) report_.epochs.back().test_metrics.push_back({name, values[e]});
  }
}

#define INSTANTIATE(T, Exec)                      \
  template bool Training<T>::resume();            \
  template bool Training<T>::save_if_due();       \
  template Index Training<T>::checkpoint_bytes(); \
  template void Training<T>::archive(checkpoint::Archive&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
