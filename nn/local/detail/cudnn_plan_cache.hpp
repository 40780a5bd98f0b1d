#pragma once
// Plans of cuDNN in files, so that the next process does not search for engines again.
//
//   CudnnPlanCache cache(folder, handle.device());
//   std::vector<CudnnPlan> plans = cache.plans(graph, {.most = 1});      // from a file, or made and kept
//
// One file per graph and options, in a folder per version of cuDNN and device:
//
//   FOLDER/cudnn-91900-1a2b3c4d/5e6f7081.plan
//
// A file has the whole key, cuDNN's own form of the plan and a checksum. A file that is damaged, or that cuDNN does not
// take, counts as none, and keep() replaces it. Files appear complete or not at all, so processes may share a folder.
//
// Without Kokkos; calls no device. Not collective.
#include <aloni/core/io/file_system.hpp>
#include <aloni/nn/local/detail/cudnn_plans.hpp>

#include <optional>
#include <string>
#include <vector>

namespace aloni::nn::local::detail {

class CudnnPlanCache {
 public:
  /// `folder`: need not exist; empty: nothing is kept. `files` outlives the object.
  /// Throws Unsupported without cuDNN.
  CudnnPlanCache(std::string folder, CudnnDevice device, io::FileSystem& files = io::real_file_system());

  /// As cudnn_plans(). With options.most = 1 the plan comes from its file if there is one, or is kept there. If that
  /// fails, a notice (core/notice.hpp) says so, and nothing more is kept.
  std::vector<CudnnPlan> plans(const CudnnGraph& graph, const CudnnPlanOptions& options);

  /// The plan that was kept for this graph and these options. None if there is none; `reason` then says what is wrong
  /// with a file, if there is one.
  std::optional<CudnnPlan> find(const CudnnGraph& graph, const CudnnPlanOptions& options,
                                std::string* reason = nullptr) const;

  /// Replaces the plan for this graph and these options. Throws FileError.
  void keep(const CudnnGraph& graph, const CudnnPlanOptions& options, const CudnnPlan& plan) const;

  /// The file, whether it exists or not; empty if nothing is kept.
  std::string path_of(const CudnnGraph& graph, const CudnnPlanOptions& options) const;

 private:
  std::string folder_, subfolder_;
  CudnnDevice device_;
  io::FileSystem& files_;
  bool keeps_ = true;  ///< no file has failed
};

}  // namespace aloni::nn::local::detail
