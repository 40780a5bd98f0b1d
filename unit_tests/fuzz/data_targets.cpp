// Files of samples: IDX, CIFAR-10, npy, raw elements with a description, and a folder with labels.
#include "fuzz_target.hpp"

#include <aloni/nn/data/cifar10.hpp>
#include <aloni/nn/data/data_sets.hpp>
#include <aloni/nn/data/idx.hpp>
#include <aloni/nn/data/npy.hpp>
#include <aloni/nn/data/raw_array.hpp>

#include <filesystem>
#include <fstream>
#include <nn/data/data_files.hpp>
#include <stdexcept>

namespace aloni::test {

namespace {

// A byte of deflate stands for up to 1,032 bytes; vectors grow by doubling.
constexpr std::size_t heap_of_gzip = 3 * 1032;

void store(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

/// The last sample, which must lie in the file. `most`: size of the file, decompressed.
void read_last(const nn::SampleArray& array, std::size_t most) {
  const Index sample = array.extents().size() * nn::bytes_of(array.type());
  if (array.size() < 1) return;
  if (saturating_product(sample, array.size()) > static_cast<Index>(most))
    throw std::logic_error("an array of more bytes than its file");
  std::vector<std::byte> into(static_cast<std::size_t>(sample));
  array.read(array.size() - 1, whole(array.extents()), into);
  static_cast<void>(array.fingerprint());
}

#ifdef ALONI_FUZZ_GZIP
std::string gzip_of_idx() {  // gzip -9 of an IDX file of 2 x 3 bytes
  static constexpr unsigned char bytes[] = {31, 139, 8,  0,  0,   0,  0,  0,  2, 3,  99,  96, 224, 96, 98, 96, 96, 0,
                                            97, 102, 70, 38, 102, 22, 86, 54, 0, 72, 148, 62, 229, 18, 0,  0,  0};
  return {reinterpret_cast<const char*>(bytes), sizeof bytes};
}
#endif

FuzzTarget idx_target(const std::string& folder) {
  return {.name = "idx",
          .seeds = {idx({4}, std::string("\0\1\2\3", 4)), idx({2, 2, 3}, "abcdefghijkl")},
          .read =
              [path = folder + "/idx"](const std::string& input) {
                store(path, input);
                const nn::IdxArray array = nn::read_idx(path);
                if (array.values.size() > 1032 * input.size()) throw std::logic_error("more values than bytes");
              },
          .heap_per_byte = heap_of_gzip};
}

FuzzTarget cifar_target(const std::string& folder) {
  return {.name = "cifar10",
          .seeds = {std::string(3073, '\3'), std::string(2 * 3073, '\0')},
          .read =
              [folder = folder + "/cifar"](const std::string& input) {
                std::filesystem::create_directory(folder);
                store(folder + "/data_batch_1.bin", input);
                const nn::TrainAndTestSets sets = nn::open_data_sets(folder);
                read_last(*sets.train.inputs, 1032 * input.size());
                read_last(*sets.train.targets, 1032 * input.size());
              },
          .heap_per_byte = heap_of_gzip};
}

FuzzTarget npy_target(const std::string& folder) {
  const std::string elements(48, 'x');
  return {.name = "npy",
          .seeds = {npy("|u1", "48,", elements), npy("<f4", "2, 2, 3", elements), npy("<f8", "1, 2, 3, 1", elements, 2),
                    npy("<i2", "2, 1, 2, 3, 2", elements, 3)},
          .read = [path = folder + "/array.npy"](const std::string& input) {
            store(path, input);
            read_last(*nn::open_npy(path), input.size());
          }};
}

FuzzTarget raw_target(const std::string& folder) {
  constexpr std::size_t bytes = 96;
  store(folder + "/elements.raw", std::string(bytes, 'r'));
  return {.name = "raw",
          .seeds = {R"({"file": "elements.raw", "type": "float32", "samples": 2, "extents": [3, 4]})",
                    R"({"file": "elements.raw", "type": "uint8", "samples": 5, "extents": [2, 3, 3], "offset": 6,
                        "order": "channels last"})",
                    R"({"file": "elements.raw", "type": "int64", "samples": 12, "extents": []})"},
          .read =
              [path = folder + "/array.json"](const std::string& input) {
                store(path, input);
                read_last(*nn::open_raw(path), bytes);
              },
          .heap_per_byte = 200};
}

/// Labels beside images: their number, type and values must fit.
FuzzTarget labels_target(const std::string& folder) {
  const std::string set = folder + "/set";
  std::filesystem::create_directory(set);
  store(set + "/images.npy", npy("|u1", "3, 2, 2", std::string(12, 'i')));
  return {.name = "labels",
          .seeds = {npy("<i4", "3,", std::string("\0\0\0\0\1\0\0\0\2\0\0\0", 12)), npy("|u1", "3,", "\1\2\3")},
          .read = [set](const std::string& input) {
            store(set + "/labels.npy", input);
            const nn::TrainAndTestSets sets = nn::open_data_sets(set);
            if (sets.train.size() != 3 || sets.train.classes < 1) throw std::logic_error("a wrong number of classes");
            read_last(*sets.train.targets, input.size());
          }};
}

}  // namespace

std::vector<FuzzTarget> data_targets(const std::string& folder) {
  std::vector<FuzzTarget> targets{idx_target(folder), cifar_target(folder), npy_target(folder), raw_target(folder),
                                  labels_target(folder)};
#ifdef ALONI_FUZZ_GZIP
  targets.front().seeds.push_back(gzip_of_idx());
#endif
  return targets;
}

}  // namespace aloni::test
