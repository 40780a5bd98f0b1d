#include <aloni/nn/checkpoint/archive.hpp>

#include <aloni/core/error.hpp>

#include <map>
#include <utility>

namespace aloni::nn::checkpoint {

namespace {

constexpr const char* operation = "aloni::nn::checkpoint";

template <class Value>
void load(const std::map<std::string, Value>& saved, const Checkpoint& checkpoint, const std::string& name,
          Value& value) {
  const auto found = saved.find(name);
  if (found == saved.end())
    throw InvalidArgument(operation, "state", name, "the name of a value in " + checkpoint.folder());
  value = found->second;
}

}  // namespace

void Archive::values(const std::string& name, std::vector<double>& values) {
  auto count = static_cast<std::int64_t>(values.size());
  value(name + ".count", count);
  if (count < 0 || count > max_elements)
    throw InvalidArgument(operation, name + ".count", std::to_string(count), "a number of elements");
  values.resize(static_cast<std::size_t>(count));
  const views::Extents extents{{1, 1, 1, 1, count}};
  tensor({name, ElementType::float64, extents, views::whole(extents), {views::whole(extents)}},
         std::as_writable_bytes(std::span(values)).data());
}

void Archive::expect(const std::string& name, const std::string& given) {
  std::string saved = given;
  value(name, saved);
  if (saved != given) throw InvalidArgument(operation, name, given, saved + ", as in the checkpoint");
}

void Saver::tensor(TensorSource tensor, std::byte* data) {
  tensor.data = data;
  tensors_.push_back(std::move(tensor));
}

Manifest Saver::head(std::int64_t step) const {
  Manifest head = head_;
  head.step = step;
  return head;
}

void Loader::value(const std::string& name, std::int64_t& value) {
  load(checkpoint_.manifest().state.integers, checkpoint_, name, value);
}
void Loader::value(const std::string& name, double& value) {
  load(checkpoint_.manifest().state.numbers, checkpoint_, name, value);
}
void Loader::value(const std::string& name, std::string& value) {
  load(checkpoint_.manifest().state.texts, checkpoint_, name, value);
}

void Loader::tensor(TensorSource tensor, std::byte* data) {
  const auto bytes = static_cast<std::size_t>(tensor.kept.size() * bytes_of(tensor.type));
  checkpoint_.read(tensor.name, tensor.type, tensor.extents, tensor.kept, std::span(data, bytes));
}

}  // namespace aloni::nn::checkpoint
