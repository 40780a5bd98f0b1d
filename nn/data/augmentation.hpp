#pragma once
// Random changes of training samples. They depend on the seed, the epoch and the number of the sample in its set only.
// So all ranks that share a sample change it alike, and the bits are equal for any split.
//
//   const Augmentation change = draw_augmentation({.shift = 4, .flip = true}, seed, epoch, sample);
//   const Box source = source_box(change, set.inputs->extents(), box);   // the part of the sample that `box` needs
//
// The order of the changes: shift, flip, brightness, contrast, then the normalisation of the data set.
#include <aloni/views/box.hpp>

#include <cstdint>
#include <string>

namespace aloni::nn {

/// Moves a sample by whole pixels. Pixels that the moved image does not cover become background: stored zeros.
struct Shift {
  int down = 0, right = 0;
};

struct AugmentationOptions {
  /// Each sample moves by at most this many random pixels in height and width. This equals a random crop after padding
  /// with this many pixels on each side.
  int shift = 0;
  bool flip = false;      ///< mirrors half of the samples in width
  double brightness = 0;  ///< largest relative change of the values, in [0,1]
  double contrast = 0;    ///< largest relative change of the distance from the mean, in [0,1]
};

/// The changes of one sample. `flip`: column w of the shifted sample becomes column width - 1 - w.
/// value' = ((stored · scale · brightness - mean) · contrast) / deviation. `mean` is that of the normalisation, not of
/// the sample: the mean of a sample that is split over ranks would need communication.
struct Augmentation {
  Shift shift = {};
  bool flip = false;
  double brightness = 1, contrast = 1;

  bool keeps_values() const { return brightness == 1 && contrast == 1; }
  bool keeps_places() const { return shift.down == 0 && shift.right == 0 && !flip; }
};

/// Throws InvalidArgument with `operation` for a shift below 0 and for jitter outside [0,1].
void check(const AugmentationOptions& options, const std::string& operation);

/// The changes of sample `sample` of its set in an epoch. Each has its own random numbers: switching one on leaves the
/// others as they are.
Augmentation draw_augmentation(const AugmentationOptions& options, std::uint64_t seed, std::uint64_t epoch,
                               Index sample);

/// The places of the stored sample that `box` of the changed sample shows. Empty if `box` shows background only.
/// Both boxes count within the sample. @pre contains(whole(extents), box)
views::Box source_box(const Augmentation& change, const views::Extents& extents, const views::Box& box);

}  // namespace aloni::nn
