#pragma once
// The networks of one training: one for each size of mini-batch, all with the same parameters.
#include <aloni/core/random.hpp>
#include <aloni/nn/checkpoint/archive.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/trainer.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace aloni::nn {

template <class T>
class Networks {
 public:
  using Exec = execution_space_t<T>;
  using AllParameters = Parameters<parameter_type_t<T>, Exec>;

  /// @pre all arguments outlive this object
  Networks(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& description,
           const Strategy& strategy, AllParameters& parameters, const NetworkOptions& options, std::uint64_t seed)
      : comm_(comm),
        queue_(queue),
        description_(description),
        strategy_(strategy),
        parameters_(parameters),
        options_(options),
        seed_(seed) {}

  /// The network for mini-batches of so many samples, made when it is first asked for. Collective.
  Network<T, Exec>& of(Index samples) {
    auto& network = networks_[samples];
    if (!network) {
      // Each network counts its own steps: another seed gives it other masks of dropout layers.
      options_.dropout_seed = random::integer(seed_, std::uint64_t{1} << 34, static_cast<std::uint64_t>(samples));
      network =
          std::make_unique<Network<T, Exec>>(comm_, queue_, description_, strategy_, samples, parameters_, options_);
      if (const auto saved = dropout_steps_.find(samples); saved != dropout_steps_.end())
        network->set_dropout_step(saved->second);
    }
    return *network;
  }

  /// Saves or restores the number of the next mask of dropout for mini-batches of so many samples. Not collective.
  void archive(checkpoint::Archive& archive, Index samples) {
    const auto found = networks_.find(samples);
    auto& saved = dropout_steps_[samples];
    if (found != networks_.end()) saved = found->second->dropout_step();
    auto step = static_cast<std::int64_t>(saved);
    archive.value("dropout_step." + std::to_string(samples), step);
    saved = static_cast<std::uint64_t>(step);
    if (archive.loads() && found != networks_.end()) found->second->set_dropout_step(saved);
  }

  /// Time of all networks so far.
  TimeReport time() const {
    TimeReport sum;
    for (const auto& [samples, network] : networks_) {
      const Stopwatch& s = network->stopwatch();
      sum.compute += s.seconds(Stopwatch::Phase::compute);
      sum.halo += s.seconds(Stopwatch::Phase::halo);
      sum.collective += s.seconds(Stopwatch::Phase::collective);
      sum.input += s.seconds(Stopwatch::Phase::input);
    }
    return sum;
  }

 private:
  const comm::Communicator& comm_;
  const Queue<Exec>& queue_;
  const NetworkDescription& description_;
  const Strategy& strategy_;
  AllParameters& parameters_;
  NetworkOptions options_;
  std::uint64_t seed_;
  std::map<Index, std::unique_ptr<Network<T, Exec>>> networks_;
  std::map<Index, std::uint64_t> dropout_steps_;  ///< for networks that are not made yet
};

}  // namespace aloni::nn
