#pragma once
// A made-up set for segmentation: discs with stripes, noise and a shade of their own on a wavy background. The mask is
// 1 in the discs. A pixel alone does not tell whether it belongs to a disc.
#include <aloni/core/index.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace segmentation {

using aloni::Index;

/// The same numbers with every standard library.
class Chance {
 public:
  explicit Chance(std::uint32_t seed) : engine_(seed) {}
  float between(float low, float high) { return low + (high - low) * static_cast<float>(engine_()) / 4294967296.0F; }
  /// Of mean 0 and deviation 1: the sum of four uniform numbers.
  float noise() { return std::sqrt(3.0F) * (between(-1, 1) + between(-1, 1) + between(-1, 1) + between(-1, 1)) / 2; }

 private:
  std::mt19937 engine_;
};

struct Set {
  Index samples = 0, size = 0;
  std::vector<float> images;        ///< samples × size × size
  std::vector<std::uint8_t> masks;  ///< of the same shape
};

/// cos(frequency · (x cos angle + y sin angle) + phase), of a random direction.
struct Wave {
  float x, y, phase;
  Wave(Chance& chance, float frequency) : phase(chance.between(0, 6.28F)) {
    const float angle = chance.between(0, 6.28F);
    x = frequency * std::cos(angle);
    y = frequency * std::sin(angle);
  }
  float at(float row, float column) const { return std::cos(x * column + y * row + phase); }
};

inline void add_sample(Set& set, Chance& chance) {
  const auto size = static_cast<float>(set.size);
  const std::size_t first = set.images.size();
  const Wave ground(chance, chance.between(4, 12) / size);
  for (Index row = 0; row < set.size; ++row)
    for (Index column = 0; column < set.size; ++column)
      set.images.push_back(0.3F * ground.at(static_cast<float>(row), static_cast<float>(column)) +
                           0.3F * chance.noise());
  set.masks.resize(set.images.size());
  const int discs = 1 + static_cast<int>(chance.between(0, 3));
  for (int disc = 0; disc < discs; ++disc) {
    const float radius = size * chance.between(0.12F, 0.28F), shade = chance.between(0.2F, 0.8F);
    const float middle_row = chance.between(0, size), middle_column = chance.between(0, size);
    const Wave stripes(chance, chance.between(0.8F, 1.4F));
    for (Index row = 0; row < set.size; ++row) {
      for (Index column = 0; column < set.size; ++column) {
        const float y = static_cast<float>(row), x = static_cast<float>(column);
        if (std::hypot(y - middle_row, x - middle_column) > radius) continue;
        const std::size_t pixel = first + static_cast<std::size_t>(row * set.size + column);
        set.images[pixel] = shade + 0.8F * stripes.at(y, x) + 0.3F * chance.noise();
        set.masks[pixel] = 1;
      }
    }
  }
}

inline Set make_set(Index samples, Index size, std::uint32_t seed) {
  Set set{samples, size, {}, {}};
  Chance chance(seed);
  for (Index i = 0; i < samples; ++i) add_sample(set, chance);
  return set;
}

/// As numpy.save writes an array of the shape samples, size, size. `type`: "<f4" or "|u1".
template <class T>
void write_npy(const std::string& path, const std::string& type, const Set& set, const std::vector<T>& values) {
  const std::string size = std::to_string(set.size);
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + std::to_string(set.samples) +
                       ", " + size + ", " + size + "), }";
  header.append((64 - (10 + header.size() + 1) % 64) % 64, ' ').append("\n");
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY\1" << '\0' << static_cast<char>(header.size()) << static_cast<char>(header.size() >> 8) << header;
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  if (!file.flush()) throw std::runtime_error(path + " cannot be written");
}

/// images.npy and masks.npy, or test-images.npy and test-masks.npy.
inline void write_set(const std::string& folder, const std::string& prefix, const Set& set) {
  write_npy(folder + "/" + prefix + "images.npy", "<f4", set, set.images);
  write_npy(folder + "/" + prefix + "masks.npy", "|u1", set, set.masks);
}

}  // namespace segmentation
