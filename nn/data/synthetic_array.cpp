#include <aloni/nn/data/synthetic_array.hpp>

#include <aloni/core/host_random.hpp>

#include <cstring>

namespace aloni::nn {

namespace {

using views::Box;

/// Element `position` of the array is value(64 random bits).
template <class T, class Value>
class SyntheticArray : public SampleArray {
 public:
  SyntheticArray(StoredType type, Index samples, const views::Extents& extents, std::uint64_t seed,
                 std::uint64_t stream, Value value)
      : SampleArray("synthetic samples", samples, type, extents), seed_(seed), stream_(stream), value_(value) {}

 private:
  void read_box(Index sample, const Box& box, std::span<std::byte> into) const override {
    const auto& e = extents().values;
    std::byte* to = into.data();
    for (Index d = box.lo[1]; d < box.hi[1]; ++d) {
      for (Index h = box.lo[2]; h < box.hi[2]; ++h) {
        for (Index w = box.lo[3]; w < box.hi[3]; ++w) {
          const Index pixel = ((sample * e[1] + d) * e[2] + h) * e[3] + w;
          for (Index c = box.lo[4]; c < box.hi[4]; ++c, to += sizeof(T)) {
            const T value = value_(random::host_integer(seed_, stream_, static_cast<std::uint64_t>(pixel * e[4] + c)));
            std::memcpy(to, &value, sizeof(T));
          }
        }
      }
    }
  }
  std::uint64_t digest() const override { return random::host_integer(seed_, stream_, 0); }

  std::uint64_t seed_, stream_;
  Value value_;
};

}  // namespace

std::shared_ptr<const SampleArray> synthetic_values(Index samples, const views::Extents& extents, std::uint64_t seed,
                                                    std::uint64_t stream) {
  const auto unit = [](std::uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24f; };
  return std::make_shared<SyntheticArray<float, decltype(unit)>>(StoredType::float32, samples, extents, seed, stream,
                                                                 unit);
}

std::shared_ptr<const SampleArray> synthetic_labels(Index samples, const views::Extents& extents, Index classes,
                                                    std::uint64_t seed, std::uint64_t stream) {
  const auto label = [below = static_cast<std::uint64_t>(classes)](std::uint64_t bits) {
    return static_cast<std::int32_t>(bits % below);
  };
  return std::make_shared<SyntheticArray<std::int32_t, decltype(label)>>(StoredType::int32, samples, extents, seed,
                                                                         stream, label);
}

}  // namespace aloni::nn
