// The state of a training: manifests and blocks of checkpoints, and safetensors.
#include "fuzz_target.hpp"

#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/nn/checkpoint/files.hpp>
#include <aloni/nn/checkpoint/reader.hpp>
#include <aloni/nn/safetensors.hpp>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <support/simulated_files.hpp>

namespace aloni::test {

namespace {

using nn::ElementType;
using nn::checkpoint::Manifest;

constexpr const char* before_checksum = ",\"crc32c\":\"";

/// The manifest as text, without the checksum at its end: inputs with a wrong one would all end there.
std::string without_checksum(const Manifest& manifest) {
  const std::string text = nn::checkpoint::to_json(manifest);
  return text.substr(0, text.rfind(before_checksum));
}

std::string with_checksum(const std::string& body) {
  std::array<char, 9> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", comm::detail::crc32c(body.data(), body.size()));
  return body + before_checksum + digits.data() + "\"}\n";
}

Manifest example(const std::string& data) {
  Manifest m;
  m.step = 12;
  m.state.integers = {{"step", 12}, {"epoch", -1}};
  m.state.numbers = {{"learning_rate", 0.1}, {"loss", -1e300}};
  m.state.texts = {{"optimiser", "adam"}};
  const auto crc = [&](std::size_t offset, std::size_t bytes) {
    return comm::detail::crc32c(data.data() + offset, bytes);
  };
  m.tensors = {{"conv.weight",
                ElementType::float32,
                {{2, 1, 2, 1, 2}},
                {{{{0, 0, 0, 0, 0}, {1, 1, 2, 1, 2}}, "rank-0.bin", 0, 16, crc(0, 16)},
                 {{{1, 0, 0, 0, 0}, {2, 1, 2, 1, 2}}, "rank-0.bin", 16, 16, crc(16, 16)}}},
               {"fc.bias",
                ElementType::float64,
                {{1, 1, 1, 1, 2}},
                {{{{}, {1, 1, 1, 1, 2}}, "rank-0.bin", 32, 16, crc(32, 16)}}},
               {"none", ElementType::float64, {{1, 1, 1, 1, 0}}, {}}};
  return m;
}

FuzzTarget manifest_target() {
  return {.name = "manifest",
          .seeds = {without_checksum(example(std::string(48, '\0'))), without_checksum(Manifest{})},
          .read =
              [](const std::string& input) {
                const Manifest read = nn::checkpoint::parse_manifest(with_checksum(input), "manifest.json");
                const std::string text = nn::checkpoint::to_json(read);
                if (nn::checkpoint::to_json(nn::checkpoint::parse_manifest(text, "again")) != text)
                  throw std::logic_error("a manifest that changes when it is written");
              },
          .heap_per_byte = 300};
}

/// A manifest without its checksum, a zero byte, and the data of rank 0.
FuzzTarget checkpoint_target() {
  const std::string data(48, '\1');
  return {.name = "checkpoint",
          .seeds = {without_checksum(example(data)) + '\0' + data},
          .read =
              [](const std::string& input) {
                const auto end = std::min(input.find('\0'), input.size());
                const std::string data = input.substr(std::min(end + 1, input.size()));
                SimulatedFiles files;
                files.make_folder("run");
                const std::string folder = "run/" + nn::checkpoint::folder_name(12);
                files.make_folder(folder);
                io::write_file(files, folder + "/manifest.json", with_checksum(input.substr(0, end)));
                io::write_file(files, folder + "/rank-0.bin", data);
                const nn::checkpoint::Newest newest = nn::checkpoint::find_newest(files, "run");
                if (!newest.checkpoint && newest.refused.empty()) throw std::logic_error("a checkpoint is forgotten");
                const auto checkpoint = nn::checkpoint::open_checkpoint(files, "run", 12);
                checkpoint.verify();
                if (!newest.checkpoint) throw std::logic_error("a good checkpoint is refused");
                for (const auto& tensor : checkpoint.manifest().tensors) {
                  const Index bytes = saturating_product(tensor.extents.size(), nn::bytes_of(tensor.type));
                  if (bytes > std::ssize(data)) throw std::logic_error("a tensor of more bytes than its file");
                  std::vector<std::byte> into(static_cast<std::size_t>(bytes));
                  checkpoint.read(tensor.name, tensor.type, tensor.extents, whole(tensor.extents), into);
                }
              },
          .heap_per_byte = 300};
}

std::string safetensors_seed() {
  SimulatedFiles files;
  const std::string data(24, '\2');
  const auto bytes = std::as_bytes(std::span(data));
  nn::write_safetensors(files, "seed",
                        {{"conv.weight", ElementType::float32, {1, 2, 2}, bytes.first(16)},
                         {"fc.bias", ElementType::float64, {1}, bytes.last(8)},
                         {"none", ElementType::bfloat16, {0, 3}, {}}},
                        {{"model", "lenet5"}});
  const auto& contents = files.contents("seed");
  return {reinterpret_cast<const char*>(contents.data()), contents.size()};
}

FuzzTarget safetensors_target() {
  return {.name = "safetensors",
          .seeds = {safetensors_seed(), std::string("\2\0\0\0\0\0\0\0{}", 10)},
          .read =
              [](const std::string& input) {
                SimulatedFiles files;
                const auto bytes = std::as_bytes(std::span(input));
                files.create("weights")->write(bytes);
                const nn::Safetensors file(files, "weights");
                for (const auto& [name, entry] : file.entries()) {
                  if (entry.bytes > std::ssize(input)) throw std::logic_error("a tensor of more bytes than its file");
                  std::vector<std::byte> into(static_cast<std::size_t>(entry.bytes));
                  file.read(name, into);
                }
              },
          .heap_per_byte = 300};
}

}  // namespace

std::vector<FuzzTarget> state_targets() { return {manifest_target(), checkpoint_target(), safetensors_target()}; }

}  // namespace aloni::test
