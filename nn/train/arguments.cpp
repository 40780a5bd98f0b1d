#include <aloni/nn/train/arguments.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/data/host_batch.hpp>
#include <aloni/nn/detail/replicated.hpp>
#include <aloni/nn/plan/offloading.hpp>

#include <cmath>

namespace aloni::nn {

namespace {

void check(bool good, const char* argument, const std::string& value, const char* expectation) {
  if (!good) throw InvalidArgument("aloni::nn::train", argument, value, expectation);
}

}  // namespace

void check_replicated(const comm::Communicator& comm, const std::string& element, const NetworkDescription& network,
                      const Strategy& strategy, const comm::ReplicatedValues& data, const TrainOptions& options) {
  const auto& [batch, accumulate, epochs, steps, seed, optimiser, update, kfac, schedule, early_stop, average, shift,
               flip, brightness, contrast, backend, tf32, record, gradients, check_replicas, allow_nonfinite,
               timed_steps, checkpoint, initial_weights, export_weights, memory, bucket_bytes, chunk_bytes,
               direct_bytes, consolidate_below, largest_overhead, multiplications_per_slab, convolutions,
               work_per_copied_byte, sample_results] = options;
  comm::ReplicatedValues values;
  values.add("element type", element);
  values.add("batch", batch).add("accumulate", accumulate).add("epochs", epochs).add("steps", steps).add("seed", seed);
  detail::add_to(values, optimiser);
  detail::add_to(values, update);
  values.add("kfac", kfac.has_value());
  if (kfac) {
    const auto& [every, factors_every, delay, damping, decay, kl_clip, solver] = *kfac;  // solvers cannot be compared
    (void)solver;
    values.add("kfac every", every).add("kfac factors_every", factors_every).add("kfac delay", delay);
    values.add("kfac damping", damping).add("kfac decay", decay).add("kfac kl_clip", kl_clip);
  }
  detail::add_to(values, schedule);
  detail::add_to(values, early_stop);
  values.add("average", average ? average->decay : -1.0).add("average's warm-up", average && average->warm_up);
  values.add("shift", shift).add("flip", flip).add("brightness", brightness).add("contrast", contrast);
  values.add("backend", std::string(local::name(backend))).add("tf32", tf32).add("record", record);
  values.add("gradients", std::string(gradients == GradientReduction::all ? "all" : "majority"));
  values.add("check_replicas", check_replicas).add("allow_nonfinite", allow_nonfinite);
  values.add("timed_steps", timed_steps);
  values.add("checkpoint folder", checkpoint.folder).add("checkpoint every_steps", checkpoint.every_steps);
  values.add("checkpoint every_seconds", checkpoint.every_seconds).add("checkpoint keep", checkpoint.keep);
  values.add("checkpoint resume", checkpoint.resume);
  values.add("initial_weights", initial_weights).add("export_weights", export_weights);
  values.add("memory.recompute", memory.recompute).add("memory.offload", memory.offload);
  values.add("memory.limit", memory.limit.value_or(0));
  values.add("bucket_bytes", bucket_bytes.value_or(-1)).add("chunk_bytes", chunk_bytes.value_or(-1));
  values.add("direct_bytes", direct_bytes.value_or(-1));
  values.add("consolidate_below", consolidate_below.value_or(-1));
  values.add("largest_overhead", largest_overhead.value_or(-1));
  values.add("multiplications_per_slab", multiplications_per_slab.value_or(-1));
  detail::add_to(values, "convolutions", convolutions);
  detail::add_to(values, "work_per_copied_byte", work_per_copied_byte);
  values.add("sample_results", sample_results);
  // The images determine the input of most networks. Their number is the better explanation.
  for (const auto& [name, text] : data.values()) values.add(name, text);
  detail::add_to(values, network);
  detail::add_to(values, strategy);
  comm::check_equal(comm, "aloni::nn::train", values);
}

void check_arguments(const TrainOptions& o) {
  check(o.batch >= 1, "batch", std::to_string(o.batch), "at least 1 sample");
  check(o.accumulate >= 1 && o.batch % o.accumulate == 0, "accumulate", std::to_string(o.accumulate),
        "a divisor of the samples of a step");
  if (o.accumulate > 1 && o.gradients != GradientReduction::all)
    throw Unsupported("aloni::nn::train", "gradients", "majority", "all, or accumulate 1");
  check(o.epochs >= 0, "epochs", std::to_string(o.epochs), "at least 0");
  check(o.steps >= 0, "steps", std::to_string(o.steps), "at least 0 (0: all steps of the epochs)");
  nn::check(o.optimiser, 1, "aloni::nn::train");
  check(learning_rate(o.optimiser) >= 0, "learning rate", std::to_string(learning_rate(o.optimiser)),
        "a finite number ≥ 0");
  nn::check(o.update, "aloni::nn::train");
  if (o.update.loss_scaling && o.kfac)
    throw Unsupported("aloni::nn::train", "loss scaling", "given", "none, as K-FAC needs the gradients of the loss");
  if (o.update.loss_scaling && o.gradients != GradientReduction::all) {
    throw Unsupported("aloni::nn::train", "loss scaling", "given",
                      "none, or the gradients of all ranks: late gradients are those of another scale");
  }
  if (o.kfac) {
    nn::check(*o.kfac, "aloni::nn::train");
    if (kind_of(o.optimiser) != OptimiserKind::sgd)
      throw Unsupported("aloni::nn::train", "optimiser", name(kind_of(o.optimiser)),
                        "sgd, whose gradients K-FAC makes");
    if (o.gradients != GradientReduction::all)
      throw Unsupported("aloni::nn::train", "gradients", "majority", "all, as the factors are sums of all ranks");
  }
  nn::check(o.schedule, "aloni::nn::train");
  nn::check(o.early_stop, "aloni::nn::train");
  if (o.average) nn::check(*o.average, "aloni::nn::train");
  nn::check(augmentation_of(o), "aloni::nn::train");
  check(o.timed_steps >= 0, "timed_steps", std::to_string(o.timed_steps), "at least 0 (0: none)");
  check(o.check_replicas >= 0, "check_replicas", std::to_string(o.check_replicas), "at least 0 (0: no check)");
  check(!o.memory.limit || *o.memory.limit >= 1, "memory.limit", std::to_string(o.memory.limit.value_or(0)),
        "at least 1 byte");
  check(!o.bucket_bytes || *o.bucket_bytes >= 1, "bucket_bytes", std::to_string(o.bucket_bytes.value_or(0)),
        "at least 1 byte");
  check(!o.chunk_bytes || *o.chunk_bytes >= 1, "chunk_bytes", std::to_string(o.chunk_bytes.value_or(0)),
        "at least 1 byte");
  check(!o.direct_bytes || *o.direct_bytes >= 0, "direct_bytes", std::to_string(o.direct_bytes.value_or(0)),
        "at least 0 bytes");
  check(!o.consolidate_below || *o.consolidate_below >= 0, "consolidate_below",
        std::to_string(o.consolidate_below.value_or(0)), "at least 0 bytes");
  check(!o.largest_overhead || *o.largest_overhead >= 0, "largest_overhead",
        std::to_string(o.largest_overhead.value_or(0)), "at least 0");
  check(!o.multiplications_per_slab || *o.multiplications_per_slab >= 1, "multiplications_per_slab",
        std::to_string(o.multiplications_per_slab.value_or(0)), "at least 1");
  if (o.work_per_copied_byte)
    check_work_per_copied_byte(*o.work_per_copied_byte, "aloni::nn::train", "work_per_copied_byte");
  check(o.sample_results >= 0, "sample_results", std::to_string(o.sample_results), "at least 0 (0: none)");
  const CheckpointOptions& c = o.checkpoint;
  check(c.every_steps >= 0, "checkpoint every_steps", std::to_string(c.every_steps), "at least 0 (0: only the last)");
  check(c.every_seconds >= 0 && std::isfinite(c.every_seconds), "checkpoint every_seconds",
        std::to_string(c.every_seconds), "a finite number of at least 0 (0: not by time)");
  check(c.keep >= 0, "checkpoint keep", std::to_string(c.keep), "at least 0 (0: all)");
  if (c.folder.empty()) {
    check(!c.resume && c.every_steps == 0 && c.every_seconds == 0, "checkpoint folder", "\"\"",
          "the path of a folder, to resume and to write checkpoints");
  } else if (o.gradients != GradientReduction::all) {
    throw Unsupported("aloni::nn::train", "gradients", "majority",
                      "all, as gradients that are late for a checkpoint cannot be saved");
  }
}

void check_arguments(const NetworkDescription& network, const Dataset& train_set,
                     const std::optional<Dataset>& test_set, const TrainOptions& options) {
  constexpr const char* operation = "aloni::nn::train";
  check_arguments(options);
  nn::check(train_set, operation);
  check_fits(train_set, "training set", network, augmentation_of(options), operation);
  if (!test_set) return;
  nn::check(*test_set, operation);
  check_fits(*test_set, "test set", network, {}, operation);
}

}  // namespace aloni::nn
