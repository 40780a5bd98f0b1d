#pragma once
// State that a checkpoint saves and restores. One function names each value once, for both directions:
//
//   void Plateau::archive(checkpoint::Archive& a) {
//     a.value("schedule.best", best_);          // saved, or replaced by the saved value
//     a.value("schedule.waited", waited_);
//   }
//
//   Saver saver;      plateau.archive(saver);   // then CheckpointWriter::begin(saver.head(step), saver.tensors())
//   Loader loader(c); plateau.archive(loader);
//
// archive_parameters() in archive_parameters.hpp adds the tensors of a Parameters object.
#include <aloni/nn/checkpoint/files.hpp>
#include <aloni/nn/checkpoint/reader.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace aloni::nn::checkpoint {

/// Names are unique within a checkpoint. Values are equal on all ranks. No function is collective. When it loads, each
/// throws InvalidArgument if the checkpoint lacks the value, or has another type or extents.
class Archive {
 public:
  virtual ~Archive() = default;
  /// False: saves.
  virtual bool loads() const = 0;
  virtual void value(const std::string& name, std::int64_t& value) = 0;
  virtual void value(const std::string& name, double& value) = 0;
  virtual void value(const std::string& name, std::string& value) = 0;
  /// Any number of values, saved as a tensor. Saving keeps a pointer to them.
  void values(const std::string& name, std::vector<double>& values);
  /// Saves `value`, or throws InvalidArgument if the checkpoint has another one: an argument that must not change.
  void expect(const std::string& name, const std::string& value);

  /// `tensor.kept` lies at `data`; TensorSource::data is not used. Saving keeps a pointer to the elements.
  virtual void tensor(TensorSource tensor, std::byte* data) = 0;
  /// Saving: `memory` of tensors lives as long as this object. Loading: does nothing.
  virtual void keep(std::shared_ptr<const void> memory) = 0;
};

/// Collects state for CheckpointWriter::begin().
class Saver : public Archive {
 public:
  bool loads() const override { return false; }
  void value(const std::string& name, std::int64_t& value) override { head_.state.integers[name] = value; }
  void value(const std::string& name, double& value) override { head_.state.numbers[name] = value; }
  void value(const std::string& name, std::string& value) override { head_.state.texts[name] = value; }
  void tensor(TensorSource tensor, std::byte* data) override;
  void keep(std::shared_ptr<const void> memory) override { memory_.push_back(std::move(memory)); }

  Manifest head(std::int64_t step) const;
  const std::vector<TensorSource>& tensors() const { return tensors_; }

 private:
  Manifest head_;
  std::vector<TensorSource> tensors_;
  std::vector<std::shared_ptr<const void>> memory_;
};

/// Restores state. Throws FileError for a wrong checksum. @pre the checkpoint outlives this object
class Loader : public Archive {
 public:
  explicit Loader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  bool loads() const override { return true; }
  void value(const std::string& name, std::int64_t& value) override;
  void value(const std::string& name, double& value) override;
  void value(const std::string& name, std::string& value) override;
  void tensor(TensorSource tensor, std::byte* data) override;
  void keep(std::shared_ptr<const void>) override {}

 private:
  const Checkpoint& checkpoint_;
};

}  // namespace aloni::nn::checkpoint
