#include <aloni/nn/local/detail/cudnn_plan_cache.hpp>

#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/notice.hpp>
#include <aloni/nn/local/detail/cudnn_library.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace aloni::nn::local::detail {

namespace {

constexpr std::string_view plan_file_title = "aloni cudnn plan 2\n";

std::string crc32c_text(std::string_view text) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%08x", comm::detail::crc32c(text.data(), text.size()));
  return digits;
}

/// All numbers on which the choice of an engine depends, in one line.
std::string key_of_plan(const CudnnGraph& g, const CudnnPlanOptions& options) {
  std::string text;
  const auto add = [&](std::string_view name, auto... numbers) {
    text += name;
    ((text += ' ', text += std::to_string(numbers)), ...);
    text += "; ";
  };
  const auto add_all = [&](std::string_view name, const auto& numbers) {
    text += name;
    for (const Index n : numbers) text += ' ' + std::to_string(n);
    text += "; ";
  };
  const PaddedProblem& p = g.problem;
  add("pass", static_cast<int>(g.pass));
  add("type", static_cast<int>(g.type));
  add("samples, channels, filters, groups", p.samples, p.channels, p.filters, p.groups);
  for (const auto& [name, values] :
       {std::pair{"input", &p.input}, std::pair{"output", &p.output}, std::pair{"kernel", &p.kernel},
        std::pair{"stride", &p.stride}, std::pair{"dilation", &p.dilation}, std::pair{"before", &p.padding_before},
        std::pair{"after", &p.padding_after}})
    add_all(name, *values);
  add_all("strides of x", g.input_strides);
  add_all("of y", g.output_strides);
  add("bias, relu", g.bias ? 1 : 0, g.relu ? 1 : 0);
  add("alignment", g.input_alignment, g.output_alignment, g.filters_alignment, g.bias_alignment);
  add("first plan, engine, workspace, reduced precision, repeatable", options.first, options.engine,
      options.most_workspace_bytes, options.reduced_precision ? 1 : 0, options.repeatable ? 1 : 0);
  return text;
}

/// Takes the text up to the next newline away from the front of `rest`.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

std::optional<std::int64_t> integer_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

CudnnPlanCache::CudnnPlanCache(std::string folder, CudnnDevice device, io::FileSystem& files)
    : folder_(std::move(folder)), device_(std::move(device)), files_(files) {
  if (folder_.empty()) return;
  subfolder_ =
      folder_ + "/cudnn-" + std::to_string(cudnn_library().version()) + "-" + crc32c_text(device_.properties());
}

std::string CudnnPlanCache::path_of(const CudnnGraph& graph, const CudnnPlanOptions& options) const {
  return folder_.empty() ? "" : subfolder_ + "/" + crc32c_text(key_of_plan(graph, options)) + ".plan";
}

std::vector<CudnnPlan> CudnnPlanCache::plans(const CudnnGraph& graph, const CudnnPlanOptions& options) {
  if (folder_.empty() || options.most != 1) return cudnn_plans(graph, device_, options);
  if (std::optional<CudnnPlan> kept = find(graph, options)) return {*std::move(kept)};
  std::vector<CudnnPlan> plans = cudnn_plans(graph, device_, options);
  if (plans.empty() || !keeps_) return plans;
  try {
    keep(graph, options, plans.front());
  } catch (const FileError& error) {
    keeps_ = false;
    notice(std::string("plans of cuDNN are not kept: ") + error.what());
  }
  return plans;
}

std::optional<CudnnPlan> CudnnPlanCache::find(const CudnnGraph& graph, const CudnnPlanOptions& options,
                                              std::string* reason) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = path_of(graph, options);
  const auto none = [&](const std::string& text) -> std::optional<CudnnPlan> {
    if (reason) *reason = path + " " + text;
    return std::nullopt;
  };
  std::string text;
  try {
    const Index bytes = files_.size(path);
    if (bytes < 0) return std::nullopt;
    constexpr Index most = Index{64} << 20;  // far more than a plan has
    if (bytes > most) return none("is damaged");
    text.resize(static_cast<std::size_t>(bytes));
    files_.read(path, 0, std::as_writable_bytes(std::span(text)));
  } catch (const FileError& error) {
    return none(std::string("cannot be read: ") + error.what());
  }
  std::string_view rest = text;
  if (!rest.starts_with(plan_file_title)) return none("is damaged");
  rest.remove_prefix(plan_file_title.size());
  const std::string_view checksum = take_line(rest);
  if (checksum != crc32c_text(rest)) return none("is damaged");
  if (take_line(rest) != key_of_plan(graph, options)) return none("is of another convolution");
  const std::optional<std::int64_t> engine = integer_of(take_line(rest));
  const std::string_view reduces = take_line(rest);
  if (!engine || (reduces != "0" && reduces != "1")) return none("is damaged");
  std::optional<CudnnPlan> plan = CudnnPlan::from_json(std::string(rest), device_, *engine, reduces == "1");
  if (!plan || plan->workspace_bytes() > options.most_workspace_bytes) return none("is refused by cuDNN");
  return plan;
}

void CudnnPlanCache::keep(const CudnnGraph& graph, const CudnnPlanOptions& options, const CudnnPlan& plan) const {
  if (folder_.empty()) return;
  for (std::size_t end = subfolder_.find('/', 1); end != std::string::npos; end = subfolder_.find('/', end + 1))
    files_.make_folder(subfolder_.substr(0, end));
  files_.make_folder(subfolder_);
  const std::string body = key_of_plan(graph, options) + "\n" + std::to_string(plan.engine()) + "\n" +
                           (plan.reduces_precision() ? "1\n" : "0\n") + plan.json();
  io::write_file(files_, path_of(graph, options), std::string(plan_file_title) + crc32c_text(body) + "\n" + body);
}

}  // namespace aloni::nn::local::detail
