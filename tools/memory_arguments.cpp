#include <aloni/tools/memory_arguments.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

namespace aloni::tools {

nn::MemoryWish for_search(nn::MemoryWish wish) {
  for (std::string* const way : {&wish.recompute, &wish.offload})
    if (way->empty()) *way = "auto";
  return wish;
}

std::optional<Index> parse_bytes(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::string_view letters = "KMGT";
  if (const std::size_t power = unit.empty() ? std::string_view::npos : letters.find(unit.front());
      power != std::string_view::npos) {
    number *= std::pow(1024.0, static_cast<double>(power + 1));
    unit.remove_prefix(1);
    if (unit.starts_with('i') && unit != "i") unit.remove_prefix(1);
  }
  if (!unit.empty() && unit != "B") return std::nullopt;
  if (!(number >= 1) || number >= 9223372036854775808.0) return std::nullopt;
  return static_cast<Index>(number);
}

void MemoryArguments::add_options(CLI::App& command) {
  command_ = &command;
  command
      .add_option("--recompute", recompute_,
                  "Layers whose activations a step drops and computes again: auto, or patterns PATTERN,PATTERN,...; "
                  "the consecutive layers that a pattern matches are one block")
      ->type_name("auto|PATTERN")
      ->take_last();
  command
      .add_option("--offload", offload_,
                  "Layers whose activations leave the device for host memory between the forward and the backward "
                  "pass: auto, or patterns PATTERN,PATTERN,...")
      ->type_name("auto|PATTERN")
      ->take_last();
  command
      .add_option("--memory-limit", limit_,
                  "Most bytes of the planned buffers of a rank, with K, M, G or T: 2G; --recompute auto meets it with "
                  "as few flops as it can, --offload auto with few layers")
      ->type_name("BYTES")
      ->take_last();
}

void MemoryArguments::check() const {
  if (command_->count("--recompute") > 0 && recompute_.empty())
    refuse("--recompute", "\"\"", "auto, or patterns of names of layers");
  if (command_->count("--offload") > 0 && offload_.empty())
    refuse("--offload", "\"\"", "auto, or patterns of names of layers");
  if (command_->count("--memory-limit") > 0 && !parse_bytes(limit_))
    refuse("--memory-limit", '"' + limit_ + '"', "a number of bytes, such as 1500000, 512M or 1.5GiB");
}

void MemoryArguments::add_to(comm::ReplicatedValues& values) const {
  values.add("--recompute", recompute_).add("--offload", offload_).add("--memory-limit", limit_);
}

nn::MemoryWish MemoryArguments::wish() const {
  return {recompute_, offload_, limit_.empty() ? std::nullopt : parse_bytes(limit_)};
}

}  // namespace aloni::tools
