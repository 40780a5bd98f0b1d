#pragma once
// A dense matrix of numbers between ranks: entry (i, j) belongs to the direction from rank i to rank j.
#include <cstddef>
#include <span>
#include <vector>

namespace aloni::halo {

class SquareMatrix {
 public:
  SquareMatrix() = default;
  /// @pre size ≥ 0
  explicit SquareMatrix(int size, double value = 0)
      : size_(static_cast<std::size_t>(size)), values_(size_ * size_, value) {}

  int size() const { return static_cast<int>(size_); }
  double& operator()(int i, int j) {
    return values_[static_cast<std::size_t>(i) * size_ + static_cast<std::size_t>(j)];
  }
  double operator()(int i, int j) const {
    return values_[static_cast<std::size_t>(i) * size_ + static_cast<std::size_t>(j)];
  }
  std::span<double> row(int i) { return std::span(values_).subspan(static_cast<std::size_t>(i) * size_, size_); }
  std::span<const double> row(int i) const {
    return std::span(values_).subspan(static_cast<std::size_t>(i) * size_, size_);
  }
  /// All entries, row after row.
  std::span<double> values() { return values_; }

  friend bool operator==(const SquareMatrix&, const SquareMatrix&) = default;

 private:
  std::size_t size_ = 0;
  std::vector<double> values_;
};

}  // namespace aloni::halo
