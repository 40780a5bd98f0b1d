#include <aloni/nn/plan/detail/merged_layers.hpp>

#include <algorithm>
#include <variant>

namespace aloni::nn::detail {

using views::Dim;

PlannedLayers::PlannedLayers(const NetworkDescription& network, const NetworkPlan& layers)
    : network_(network), layers_(layers) {
  for (const LayerDescription& l : network.layers) properties_.push_back(properties_of(l.operation));
}

bool MergedLayers::computes_in_place(int i) const {
  const int source = layer(i).inputs[0].source;
  if (is_rectifier(i)) return true;
  return properties(i).computes_in_place && source >= 0 && layer(i).inputs[0].mode == InputMode::shared &&
         only_reader(source) && !layer(i).output_has_ghosts && properties(source).output_may_be_overwritten;
}

bool MergedLayers::passes_input_on(int i) const {
  const LayerInput& in = layer(i).inputs[0];
  return !trains_ && properties(i).is_identity_in_inference && in.source >= 0 && in.mode == InputMode::shared &&
         only_reader(in.source) && !layer(i).output_has_ghosts && (computes_in_place(i) || !may_be_output(i));
}

bool MergedLayers::may_be_output(int i) const {
  if (i == size() - 1) return true;
  const auto& readers = layers_.readers_of(i);
  if (readers.size() != 1) return false;
  const OperationProperties& reader = properties(readers[0]);
  return (reader.computes_in_place || reader.is_identity_in_inference) && may_be_output(readers[0]);
}

int MergedLayers::extended_by(int i) const {
  int found = -1;
  if (!concatenates(i)) return found;
  for (const int reader : layers_.readers_of(i)) {
    const LayerInput& first = layer(reader).inputs[0];
    if (found < 0 && concatenates(reader) && first.source == i) {
      found = reader;
    } else if (!std::holds_alternative<BatchNorm>(operation(reader)) || first.mode != InputMode::shared) {
      return -1;
    }
  }
  const auto is_plain = [&](int k) {
    return k < size() - 1 && !layer(k).output_has_ghosts && layer(k).recomputed.empty() &&
           layer(k).output.grid()[Dim::channel] == 1;
  };
  return found >= 0 && is_plain(i) && is_plain(found) && same_distribution(layer(found).inputs[0]) ? found : -1;
}

int MergedLayers::owner_of_output(int i) const {
  const int next = extended_by(i);
  return next < 0 ? i : owner_of_output(next);
}

bool MergedLayers::is_rectifier(int i) const {
  if (!fuses_batch_norm_ || !std::holds_alternative<Relu>(operation(i))) return false;
  const LayerInput& in = layer(i).inputs[0];
  return in.source >= 0 && std::holds_alternative<BatchNorm>(operation(in.source)) && in.mode == InputMode::shared &&
         only_reader(in.source) && same_distribution(in) && layer(i).recomputed.empty();
}

int MergedLayers::rectifier_of(int i) const {
  if (i < 0 || i == size() - 1) return -1;
  const auto& readers = layers_.readers_of(i);
  return readers.size() == 1 && is_rectifier(readers[0]) ? readers[0] : -1;
}

int MergedLayers::sum_of(int i) const {
  if (i < 0 || i == size() - 1 || !fuses_batch_norm_ || !std::holds_alternative<BatchNorm>(operation(i))) return -1;
  const auto& readers = layers_.readers_of(i);
  if (readers.size() != 1 || !std::holds_alternative<Add>(operation(readers[0]))) return -1;
  const auto is_at_hand = [&](const LayerInput& in) {
    return in.mode == InputMode::shared && same_distribution(in) && in.source <= i;
  };
  const LayerPlan& sum = layer(readers[0]);
  const bool fits = sum.inputs.size() == 2 && sum.recomputed.empty() && std::ranges::all_of(sum.inputs, is_at_hand);
  return fits ? readers[0] : -1;
}

int MergedLayers::normalisation_of_sum(int i) const {
  if (i < 0 || !std::holds_alternative<Add>(operation(i))) return -1;
  for (const LayerInput& in : layer(i).inputs)
    if (sum_of(in.source) == i) return in.source;
  return -1;
}

bool MergedLayers::rectifies_sum(int i) const {
  return std::holds_alternative<Relu>(operation(i)) && computes_in_place(i) &&
         normalisation_of_sum(layer(i).inputs[0].source) >= 0 && layer(i).recomputed.empty();
}

bool MergedLayers::is_pooled(int i) const {
  if (i < 0 || !fuses_pooling_ || !std::holds_alternative<Relu>(operation(i)) || !computes_in_place(i)) return false;
  if (is_rectifier(i) || rectifies_sum(i) || !same_distribution(layer(i).inputs[0])) return false;
  const auto& readers = layers_.readers_of(i);
  const auto* const pooling = readers.size() == 1 ? std::get_if<Pooling>(&operation(readers[0])) : nullptr;
  return pooling && pooling->kind == PoolingKind::max && layer(i).recomputed.empty();
}

bool MergedLayers::may_fuse_relu(int i) const {
  if (!fuses_inference_ || !std::holds_alternative<Convolution>(operation(i))) return false;
  const auto& readers = layers_.readers_of(i);
  return readers.size() == 1 && std::holds_alternative<Relu>(operation(readers[0])) && computes_in_place(readers[0]) &&
         !is_pooled(readers[0]);
}

int MergedLayers::normalisation_of_first_channels(int i) const {
  const auto* const own = std::get_if<BatchNorm>(&operation(i));
  if (!own || !trains_) return -1;
  const auto reads_all = [&](int k) {
    const LayerInput& in = layer(k).inputs[0];
    return in.mode == InputMode::shared && same_distribution(in) && in.distribution.grid()[Dim::channel] == 1;
  };
  const int joined = layer(i).inputs[0].source;
  if (joined < 0 || !concatenates(joined) || !reads_all(i)) return -1;
  const LayerInput& first = layer(joined).inputs[0];
  if (!same_distribution(first)) return -1;
  for (const int reader : layers_.readers_of(first.source)) {
    const auto* const other = std::get_if<BatchNorm>(&operation(reader));
    if (other && reader < i && other->scope == own->scope && other->ranks == own->ranks && reads_all(reader))
      return reader;
  }
  return -1;
}

}  // namespace aloni::nn::detail
