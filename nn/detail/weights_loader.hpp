#pragma once
// Restores tensors from a safetensors file, as from a checkpoint.
#include <aloni/nn/checkpoint/archive.hpp>
#include <aloni/nn/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

namespace aloni::nn::detail {

/// Tensors only: a file of weights has no named values. @pre the file outlives this object
class WeightsLoader : public checkpoint::Archive {
 public:
  explicit WeightsLoader(const Safetensors& file) : file_(file) {}
  bool loads() const override { return true; }
  void value(const std::string& name, std::int64_t&) override { refuse_value(name); }
  void value(const std::string& name, double&) override { refuse_value(name); }
  void value(const std::string& name, std::string&) override { refuse_value(name); }
  /// Converts between float32, float64, bfloat16 and float16.
  void tensor(checkpoint::TensorSource tensor, std::byte* data) override;
  void keep(std::shared_ptr<const void>) override {}

  /// Throws InvalidArgument if the file has tensors that have not been read.
  void check_all_read() const;

 private:
  [[noreturn]] void refuse_value(const std::string& name) const;

  const Safetensors& file_;
  std::set<std::string> read_;
};

}  // namespace aloni::nn::detail
