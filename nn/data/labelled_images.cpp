#include <aloni/nn/data/labelled_images.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/data/idx.hpp>

#include <filesystem>

namespace aloni::nn {

namespace {

constexpr const char* read_mnist_operation = "aloni::nn::read_mnist";
constexpr Index mnist_classes = 10;

struct NamedFile {
  std::string path;
  IdxFile file;
};

NamedFile open_either(const std::string& folder, const std::string& name, std::size_t dimensions) {
  const std::filesystem::path plain = std::filesystem::path(folder) / name;
  const std::string zipped = plain.string() + ".gz";
  std::error_code error;
  if (!std::filesystem::exists(plain, error) && !std::filesystem::exists(zipped, error)) {
    throw FileError(read_mnist_operation, plain.string(), "missing", "this file, or this file with .gz appended");
  }
  const std::string path = std::filesystem::exists(plain, error) ? plain.string() : zipped;
  NamedFile named{path, IdxFile(path)};
  if (named.file.extents().size() != dimensions) {
    throw FileError(read_mnist_operation, path,
                    "wrong magic number: " + std::to_string(named.file.extents().size()) + " dimensions",
                    std::to_string(dimensions));
  }
  return named;
}

LabelledImages read_set(const std::string& folder, const std::string& prefix) {
  // Both headers are checked before memory is taken: a damaged header may announce gigabytes.
  NamedFile images = open_either(folder, prefix + "-images-idx3-ubyte", 3);
  NamedFile labels = open_either(folder, prefix + "-labels-idx1-ubyte", 1);
  const auto& extents = images.file.extents();
  if (extents[0] == 0 || extents[1] == 0 || extents[2] == 0) {
    throw FileError(read_mnist_operation, images.path, "empty", "at least one image of at least one pixel");
  }
  if (extents[0] != labels.file.extents()[0]) {
    throw FileError(read_mnist_operation, labels.path, std::to_string(labels.file.extents()[0]) + " labels",
                    std::to_string(extents[0]) + ", as there are images in " + images.path);
  }
  std::vector<std::uint8_t> label_values = labels.file.read_values();
  for (std::size_t i = 0; i < label_values.size(); ++i) {
    const int label = label_values[i];
    if (label >= mnist_classes) {
      throw FileError(read_mnist_operation, labels.path,
                      "label " + std::to_string(label) + " of image " + std::to_string(i),
                      "0 to " + std::to_string(mnist_classes - 1));
    }
  }
  LabelledImages set;
  set.image = {{1, 1, extents[1], extents[2], 1}};
  set.classes = mnist_classes;
  set.pixels = images.file.read_values();
  set.labels = std::move(label_values);
  set.mean = 0.1307;
  set.deviation = 0.3081;
  return set;
}

}  // namespace

TrainAndTest read_mnist(const std::string& folder) {
  std::error_code error;
  const auto status = std::filesystem::status(folder, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status))
    throw FileError(read_mnist_operation, folder, "not a folder", "a folder with the four files of the sets");
  TrainAndTest data{read_set(folder, "train"), read_set(folder, "t10k")};
  if (data.train.image != data.test.image) {
    throw FileError(read_mnist_operation, folder, "test images " + to_string(data.test.image),
                    "extents of the training images, " + to_string(data.train.image));
  }
  return data;
}

}  // namespace aloni::nn
