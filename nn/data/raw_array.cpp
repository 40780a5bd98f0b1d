#include <aloni/nn/data/raw_array.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/nn/data/detail/dense_array.hpp>
#include <aloni/nn/data/detail/text_scanner.hpp>

#include <filesystem>
#include <optional>

namespace aloni::nn {

namespace {

constexpr const char* raw_array_operation = "aloni::nn::open_raw";

struct Description {
  std::optional<std::string> file, type, order;
  std::optional<Index> samples, offset;
  std::optional<std::vector<Index>> extents;
};

std::vector<Index> integers(detail::TextScanner& in) {
  std::vector<Index> values;
  in.require('[');
  if (in.accept(']')) return values;
  do {
    values.push_back(in.integer());
    if (values.size() > 64) in.refuse("more than 64 extents", "at most 4");
  } while (in.accept(','));
  in.require(']');
  return values;
}

Description parse(const std::string& path, const std::string& text) {
  detail::TextScanner in(raw_array_operation, path, text);
  Description d;
  const auto set = [&](auto& member, const std::string& key, auto&& value) {
    if (member) in.refuse("\"" + key + "\" a second time", "each key once");
    member = value();
  };
  const auto read_text = [&] { return in.quoted("\""); };
  const auto read_integer = [&] { return in.integer(); };
  in.require('{');
  do {
    const std::string key = in.quoted("\"");
    in.require(':');
    if (key == "file") {
      set(d.file, key, read_text);
    } else if (key == "type") {
      set(d.type, key, read_text);
    } else if (key == "order") {
      set(d.order, key, read_text);
    } else if (key == "samples") {
      set(d.samples, key, read_integer);
    } else if (key == "offset") {
      set(d.offset, key, read_integer);
    } else if (key == "extents") {
      set(d.extents, key, [&] { return integers(in); });
    } else {
      in.refuse("key \"" + key + "\"", "file, type, samples, extents, offset or order");
    }
  } while (in.accept(','));
  in.require('}');
  in.require_end();
  return d;
}

}  // namespace

std::shared_ptr<const SampleArray> open_raw(const std::string& path) {
  const std::string text = read_text_file(raw_array_operation, path, "a description in JSON");
  const Description d = parse(path, text);
  const auto require = [&](bool good, const std::string& found, const std::string& expectation) {
    if (!good) throw FileError(raw_array_operation, path, found, expectation);
  };
  for (const auto& [key, has] :
       {std::pair("file", d.file.has_value()), std::pair("type", d.type.has_value()),
        std::pair("samples", d.samples.has_value()), std::pair("extents", d.extents.has_value())}) {
    require(has, std::string("no key \"") + key + "\"", "file, type, samples and extents");
  }
  require(d.order.value_or("channels last") == "channels last", "order \"" + d.order.value_or("") + "\"",
          "\"channels last\"");
  const auto type = stored_type_of(*d.type);
  require(type.has_value(), "type \"" + *d.type + "\"", "one of: " + stored_type_names());
  std::vector<Index> shape{*d.samples};
  shape.insert(shape.end(), d.extents->begin(), d.extents->end());
  const auto [samples, extents] = detail::samples_of_shape(raw_array_operation, path, shape);
  const std::filesystem::path elements = std::filesystem::path(path).parent_path() / *d.file;
  return detail::dense_array(raw_array_operation, detail::open_stored_bytes(raw_array_operation, elements.string()),
                             static_cast<std::uint64_t>(d.offset.value_or(0)), samples, *type, extents);
}

}  // namespace aloni::nn
