#include <aloni/nn/data/target_values.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace aloni::nn {

void read_labels(const SampleArray& labels, Index sample, const views::Box& box, Index classes, std::span<int> into) {
  const Index most = classes > 0 ? classes - 1 : std::numeric_limits<int>::max();
  std::vector<std::byte> stored(into.size() * static_cast<std::size_t>(bytes_of(labels.type())));
  labels.read(sample, box, stored);
  with_stored_type(labels.type(), [&](auto tag) {
    using Stored = typename decltype(tag)::type;
    for (std::size_t i = 0; i < into.size(); ++i) {
      Stored value;
      std::memcpy(&value, stored.data() + i * sizeof(Stored), sizeof(Stored));
      if (static_cast<double>(value) < 0 || static_cast<double>(value) > static_cast<double>(most)) {
        throw FileError("aloni::nn::read_labels", labels.name(),
                        "label " + std::to_string(value) + " of sample " + std::to_string(sample),
                        "0 to " + std::to_string(most));
      }
      into[i] = static_cast<int>(value);
    }
  });
}

Index largest_label(const SampleArray& labels, Index classes) {
  Index largest = 0;
  for (Index sample = 0; sample < labels.size(); ++sample) {
    int label = 0;
    read_labels(labels, sample, whole(labels.extents()), classes, std::span(&label, 1));
    largest = std::max<Index>(largest, label);
  }
  return largest;
}

}  // namespace aloni::nn
