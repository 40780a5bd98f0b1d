#include <aloni/nn/detail/weights_loader.hpp>

#include <aloni/core/bfloat16.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/nn/checkpoint/blocks.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

namespace aloni::nn::detail {

namespace {

constexpr const char* operation = "aloni::nn::read_weights";

std::string text_of(const std::vector<Index>& shape) {
  std::string text = "[";
  for (const Index extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

std::vector<Index> without_ones(std::vector<Index> shape) {
  std::erase(shape, 1);
  return shape;
}

template <class From, class To>
void convert(const std::vector<std::byte>& from, std::vector<std::byte>& to) {
  for (std::size_t i = 0; i < from.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
    const auto converted = static_cast<To>(value);
    std::memcpy(to.data() + i * sizeof(To), &converted, sizeof(To));
  }
}

template <class To>
void convert(ElementType from, const std::vector<std::byte>& values, std::vector<std::byte>& to) {
  if (from == ElementType::float32) convert<float, To>(values, to);
  if (from == ElementType::float64) convert<double, To>(values, to);
  if (from == ElementType::bfloat16) convert<comm::bfloat16, To>(values, to);
  if (from == ElementType::float16) convert<comm::float16, To>(values, to);
}

}  // namespace

void WeightsLoader::tensor(checkpoint::TensorSource tensor, std::byte* data) {
  const auto found = file_.entries().find(tensor.name);
  if (found == file_.entries().end())
    throw InvalidArgument(operation, "tensor", tensor.name, "a tensor of this name in " + file_.path());
  const Safetensors::Entry& entry = found->second;
  const std::vector<Index> extents(tensor.extents.values.begin(), tensor.extents.values.end());
  if (without_ones(entry.shape) != without_ones(extents))
    throw InvalidArgument(operation, "shape of " + tensor.name + " in " + file_.path(), text_of(entry.shape),
                          text_of(extents) + ", apart from extents of 1");
  const auto type = element_type_of(entry.type);
  if (!type)
    throw InvalidArgument(operation, "type of " + tensor.name + " in " + file_.path(), entry.type, "F32, F64 or BF16");
  std::vector<std::byte> values(static_cast<std::size_t>(entry.bytes));
  file_.read(tensor.name, values);
  if (*type != tensor.type) {
    std::vector<std::byte> converted(static_cast<std::size_t>(tensor.extents.size() * bytes_of(tensor.type)));
    tensor.type == ElementType::float64 ? convert<double>(*type, values, converted)
                                        : convert<float>(*type, values, converted);
    values = std::move(converted);
  }
  checkpoint::copy_box(tensor.kept, views::whole(tensor.extents), values.data(), tensor.kept, data,
                       bytes_of(tensor.type));
  read_.insert(tensor.name);
}

void WeightsLoader::check_all_read() const {
  for (const auto& [name, entry] : file_.entries())
    if (!read_.contains(name))
      throw InvalidArgument(operation, "tensor in " + file_.path(), name, "only tensors of the network");
}

void WeightsLoader::refuse_value(const std::string& name) const {
  throw InvalidArgument(operation, "value", name, "tensors only");
}

}  // namespace aloni::nn::detail
