#pragma once
// Many samples of equal extents and type, of which any box can be read: the images, or the masks, of a data set.
//
//   const auto images = open_npy("images.npy");                          // reads the header only
//   std::vector<std::byte> part(box.size() * bytes_of(images->type()));
//   images->read(7, box, part);                                          // rows 100 to 199 of sample 7, for example
//
// A rank reads only the box that it needs. A sample that is larger than the memory of a rank is never whole there.
// Readers of files are in idx_array.hpp, cifar10.hpp, npy.hpp, raw_array.hpp. To read another format, derive a class.
#include <aloni/nn/data/stored_type.hpp>
#include <aloni/views/box.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace aloni::nn {

class SampleArray {
 public:
  virtual ~SampleArray() = default;
  SampleArray(const SampleArray&) = delete;
  SampleArray& operator=(const SampleArray&) = delete;

  const std::string& name() const { return name_; }           ///< for error texts: the path of the file
  Index size() const { return size_; }                        ///< number of samples
  StoredType type() const { return type_; }                   ///< in memory: host byte order
  const views::Extents& extents() const { return extents_; }  ///< one sample: 1,D,H,W,C

  /// Writes the elements of `box` of one sample to `into`, dense, channels last. Threads may call it at once.
  /// `box` counts within the sample: its range of samples is [0,1).
  /// @pre 0 ≤ sample < size(), contains(whole(extents()), box), into.size() = box.size() * bytes_of(type())
  /// Not collective. Throws InvalidArgument for a wrong argument, and FileError naming the path.
  void read(Index sample, const views::Box& box, std::span<std::byte> into) const;

  /// Type, number of samples, extents and a digest, for the comparison between ranks. The digest of a file covers its
  /// size, and 16 blocks of 4 KiB spread over it. Paths may differ between ranks. Throws FileError.
  std::string fingerprint() const;

 protected:
  /// Throws InvalidArgument for an extent below 1, a negative size, and more than max_bytes.
  SampleArray(std::string name, Index size, StoredType type, const views::Extents& extents);

 private:
  /// As read(), with checked arguments and a box that is not empty.
  virtual void read_box(Index sample, const views::Box& box, std::span<std::byte> into) const = 0;
  virtual std::uint64_t digest() const = 0;

  std::string name_;
  Index size_;
  StoredType type_;
  views::Extents extents_;
};

}  // namespace aloni::nn
