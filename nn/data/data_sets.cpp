#include <aloni/nn/data/data_sets.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/nearest_file.hpp>
#include <aloni/core/nearest_name.hpp>
#include <aloni/nn/data/cifar10.hpp>
#include <aloni/nn/data/hdf5_array.hpp>
#include <aloni/nn/data/idx.hpp>
#include <aloni/nn/data/idx_array.hpp>
#include <aloni/nn/data/npy.hpp>
#include <aloni/nn/data/raw_array.hpp>
#include <aloni/nn/data/target_values.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>

namespace aloni::nn {

namespace {

constexpr const char* data_sets_operation = "aloni::nn::open_data_sets";

class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      const bool exists = std::filesystem::exists(path, error);
      throw FileError(data_sets_operation, path, exists ? "not a folder" : "missing",
                      "a folder with data sets (docs/data.md)" + did_you_mean_file(path));
    }
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
      names_.push_back(entry->path().filename().string());
    if (error)
      throw FileError(data_sets_operation, path, "cannot be read (" + error.message() + ")", "a readable folder");
    std::sort(names_.begin(), names_.end());
  }

  const std::string& path() const { return path_; }
  std::string path_of(const std::string& name) const { return (std::filesystem::path(path_) / name).string(); }
  bool has(const std::string& name) const { return std::binary_search(names_.begin(), names_.end(), name); }
  /// Path of the file, or of the file with .gz; empty if there is neither.
  std::string either(const std::string& name) const {
    return has(name) ? path_of(name) : has(name + ".gz") ? path_of(name + ".gz") : "";
  }
  const std::vector<std::string>& names() const { return names_; }

  [[noreturn]] void refuse(const std::string& found, const std::string& expectation) const {
    throw FileError(data_sets_operation, path_, found, expectation);
  }

 private:
  std::string path_;
  std::vector<std::string> names_;
};

/// Reports contradictions of a set as defects of the folder.
Dataset checked(const std::string& path, Dataset set) {
  try {
    check(set, data_sets_operation);
  } catch (const InvalidArgument& e) {
    throw FileError(data_sets_operation, path, e.argument() + " " + e.value(), e.expectation());
  }
  return set;
}

/// Reads all labels, so that a wrong one stops the start of a training and not its middle.
Dataset with_checked_labels(Dataset set) {
  largest_label(*set.targets, set.classes);
  return set;
}

std::string required(const Folder& folder, const std::string& name) {
  const std::string path = folder.either(name);
  if (path.empty())
    throw FileError(data_sets_operation, folder.path_of(name), "missing",
                    "this file, or it with .gz appended" + did_you_mean(name, folder.names()));
  return path;
}

Dataset mnist(const Folder& folder, const std::string& prefix) {
  const std::string images = required(folder, prefix + "-images-idx3-ubyte");
  const std::string labels = required(folder, prefix + "-labels-idx1-ubyte");
  // Both headers are compared before a compressed file is inflated: a damaged header may announce gigabytes.
  const auto count = [](const std::string& path) { return IdxFile(path).extents().front(); };
  if (count(images) != count(labels)) {
    throw FileError(data_sets_operation, labels, std::to_string(count(labels)) + " labels",
                    std::to_string(count(images)) + ", as there are images in " + images);
  }
  return with_checked_labels(checked(folder.path(), {.inputs = open_idx(images),
                                                     .targets = open_idx(labels),
                                                     .target_kind = TargetKind::sample_labels,
                                                     .classes = 10,
                                                     .normalisation = {1.0 / 255.0, {0.1307}, {0.3081}}}));
}

std::vector<std::string> cifar10_batches(const Folder& folder) {
  std::vector<std::string> paths;
  for (const auto& name : folder.names()) {
    const std::string plain = name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name;
    if (!name.starts_with("data_batch_") || !plain.ends_with(".bin")) continue;
    if (plain != name && folder.has(plain)) folder.refuse("both " + plain + " and " + name, "one of them");
    paths.push_back(folder.path_of(name));
  }
  return paths;
}

/// The path of the own array, whose name is one of `names` and ends with .npy or .json; empty if there is none.
std::string own_array(const Folder& folder, const std::vector<std::string>& names) {
  std::string found;
  for (const auto& stem : names) {
    for (const char* ending : {".npy", ".json"}) {
      const std::string name = stem + ending;
      if (!folder.has(name)) continue;
      if (!found.empty()) folder.refuse("both " + found + " and " + name, "one of them");
      found = name;
    }
  }
  return found.empty() ? "" : folder.path_of(found);
}

/// The arrays of a folder or of one file, by their names.
struct OwnArrays {
  std::string path;  ///< of the folder or the file
  /// The array whose name is one of the names; null if there is none.
  std::function<std::shared_ptr<const SampleArray>(const std::vector<std::string>& names)> find;

  [[noreturn]] void refuse(const std::string& found, const std::string& expectation) const {
    throw FileError(data_sets_operation, path, found, expectation);
  }
};

OwnArrays arrays_of(const Folder& folder) {
  return {folder.path(), [&folder](const std::vector<std::string>& names) -> std::shared_ptr<const SampleArray> {
            const std::string path = own_array(folder, names);
            if (path.empty()) return nullptr;
            return path.ends_with(".npy") ? open_npy(path) : open_raw(path);
          }};
}

OwnArrays arrays_of_hdf5(const std::string& path) {
  return {path,
          [path, all = hdf5_names(path)](const std::vector<std::string>& names) -> std::shared_ptr<const SampleArray> {
            std::string found;
            for (const auto& name : names) {
              if (!std::binary_search(all.begin(), all.end(), name)) continue;
              if (!found.empty())
                throw FileError(data_sets_operation, path, "both " + found + " and " + name, "one of them");
              found = name;
            }
            return found.empty() ? nullptr : open_hdf5(path, found);
          }};
}

std::optional<Dataset> own_set(const OwnArrays& arrays, const std::vector<std::string>& prefixes) {
  const auto find = [&](const std::string& kind) {
    std::vector<std::string> names;
    for (const auto& prefix : prefixes) names.push_back(prefix + kind);
    return arrays.find(names);
  };
  Dataset set{.inputs = find("images")};
  if (!set.inputs) return std::nullopt;
  set.normalisation = usual_normalisation(set.inputs->type());
  std::string first;
  for (const auto& [name, kind] :
       {std::pair("labels", TargetKind::sample_labels), std::pair("masks", TargetKind::pixel_labels),
        std::pair("targets", TargetKind::elements)}) {
    auto targets = find(name);
    if (!targets) continue;
    if (set.targets) arrays.refuse("both " + first + " and " + name, "one kind of targets");
    first = name;
    set.targets = std::move(targets);
    set.target_kind = kind;
  }
  if (!set.targets) arrays.refuse("no targets of " + set.inputs->name(), "labels, masks or targets");
  set = checked(arrays.path, std::move(set));
  if (set.target_kind == TargetKind::sample_labels) set.classes = largest_label(*set.targets) + 1;
  return set;
}

/// Labels of the two sets must be of one kind, and samples of equal extents.
TrainAndTestSets matching(const std::string& path, TrainAndTestSets sets) {
  if (!sets.test) return sets;
  const auto refuse = [&](const std::string& found, const std::string& expectation) {
    throw FileError(data_sets_operation, path, found, expectation);
  };
  if (sets.test->inputs->extents() != sets.train.inputs->extents()) {
    refuse("test samples of " + to_string(sets.test->inputs->extents()),
           "extents of the training samples, " + to_string(sets.train.inputs->extents()));
  }
  if (sets.test->target_kind != sets.train.target_kind) {
    refuse(std::string("test targets of kind ") + name(sets.test->target_kind),
           std::string("the kind of the training targets, ") + name(sets.train.target_kind));
  }
  sets.train.classes = sets.test->classes = std::max(sets.train.classes, sets.test->classes);
  return sets;
}

/// " (image.npy: did you mean images.npy?)": a file whose name is near to one of a data set; empty if there is none.
std::string mistyped_name_in(const Folder& folder) {
  const std::vector<std::string> known{"images.npy",
                                       "images.json",
                                       "train-images.npy",
                                       "train-images.json",
                                       "data_batch_1.bin",
                                       "train-images-idx3-ubyte",
                                       "train-images-idx3-ubyte.gz"};
  for (const std::string& name : folder.names())
    if (const std::string meant = nearest_name(name, known); !meant.empty())
      return " (" + name + ": did you mean " + meant + "?)";
  return "";
}

}  // namespace

TrainAndTestSets open_data_sets(const std::string& path) {
  const auto own_sets = [&](const OwnArrays& arrays) -> std::optional<TrainAndTestSets> {
    auto train = own_set(arrays, {"train-", ""});
    if (!train) return std::nullopt;
    return matching(path, {std::move(*train), own_set(arrays, {"test-"})});
  };
  if (path.ends_with(".h5") || path.ends_with(".hdf5")) {
    const OwnArrays arrays = arrays_of_hdf5(path);
    if (auto sets = own_sets(arrays)) return std::move(*sets);
    arrays.refuse("no data set images", "images with labels, masks or targets (docs/data.md)");
  }
  const Folder folder(path);
  if (!folder.either("train-images-idx3-ubyte").empty())
    return matching(path, {mnist(folder, "train"), mnist(folder, "t10k")});
  if (const auto batches = cifar10_batches(folder); !batches.empty()) {
    TrainAndTestSets sets{with_checked_labels(open_cifar10(batches))};
    if (const std::string test = folder.either("test_batch.bin"); !test.empty())
      sets.test = with_checked_labels(open_cifar10({test}));
    return sets;
  }
  if (auto sets = own_sets(arrays_of(folder))) return std::move(*sets);
  folder.refuse("no data set" + mistyped_name_in(folder),
                "train-images-idx3-ubyte (MNIST), data_batch_1.bin (CIFAR-10), or images.npy or images.json with "
                "labels, masks or targets (docs/data.md)");
}

}  // namespace aloni::nn
