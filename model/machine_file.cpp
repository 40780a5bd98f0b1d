#include <aloni/model/machine_file.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/nearest_name.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/model/detail/machine_fields.hpp>
#include <aloni/model/quantity_text.hpp>
#include <aloni/model/transfer_costs.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace aloni::model {

namespace {

using detail::Names;
using detail::Range;
using Json = nlohmann::json;                 // for reading: finds a member in logarithmic time
using OrderedJson = nlohmann::ordered_json;  // for writing: keeps the order of the fields

constexpr const char* parse_operation = "aloni::model::parse_machine";
constexpr const char* version_name = "aloni_machine";
constexpr std::size_t most_file_bytes = std::size_t{64} << 20;
constexpr int deepest = 16;  // of objects and lists in each other; the format has 7

// --- writing ---

class MachineWriter {
 public:
  explicit MachineWriter(OrderedJson& object) : object_(object) { object_ = OrderedJson::object(); }

  template <class T>
  void operator()(const std::string& name, const T& value, const Range& = {}) {
    object_[name] = value;
  }
  template <class F>
  void object(const std::string& name, const F& visit) {
    MachineWriter inner(object_[name]);
    visit(inner);
  }
  template <class T, class F>
  void list(const std::string& name, const std::vector<T>& values, const F& visit) {
    OrderedJson& list = object_[name] = OrderedJson::array();
    for (const T& value : values) {
      MachineWriter inner(list.emplace_back());
      visit(value, inner);
    }
  }
  template <class T, class F>
  void list(const std::string& name, const char* key, const std::map<std::string, T>& values, const F& visit) {
    OrderedJson& list = object_[name] = OrderedJson::array();
    for (const auto& [text, value] : values) {
      MachineWriter inner(list.emplace_back());
      inner(key, text);
      visit(value, inner);
    }
  }
  void numbers(const std::string& name, const std::vector<double>& values, const Range&) { object_[name] = values; }
  /// Nine digits hold all bits of a float. Its conversion to double would have 17.
  void numbers(const std::string& name, const std::vector<float>& values, const Range&) {
    OrderedJson& list = object_[name] = OrderedJson::array();
    for (const float value : values) {
      std::array<char, 32> digits{};
      const auto end =
          std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::general, 9);
      double number = std::numeric_limits<double>::quiet_NaN();
      std::from_chars(digits.data(), end.ptr, number);
      list.push_back(number);
    }
  }
  template <class T>
  void choice(const std::string& name, T value, const Names<T>& names) {
    const auto found = std::ranges::find(names, value, &Names<T>::value_type::first);
    object_[name] = found == names.end() ? "" : found->second;  // "" is refused when the text is read again
  }
  template <class T>
  void by_choice(const std::string& name, const std::map<T, double>& values, const Names<T>& names, const Range&) {
    OrderedJson& inner = object_[name] = OrderedJson::object();
    for (const auto& [value, text] : names)
      if (const auto found = values.find(value); found != values.end()) inner[text] = found->second;
  }

 private:
  OrderedJson& object_;
};

/// Values and lists of numbers take one line, and so does all else that fits into a line.
void append_lines(std::string& text, const OrderedJson& json, std::size_t indent) {
  constexpr std::size_t width = 110;
  const bool is_object = json.is_object();
  const bool is_long_list = json.is_array() && json.size() > 8 && json.front().is_number();
  const std::string line = json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  if (json.empty() || is_long_list || !json.is_structured() || line.size() + indent < width) {
    text += line;
    return;
  }
  text += is_object ? '{' : '[';
  const char* separator = "\n";
  for (const auto& [name, value] : json.items()) {
    text += separator + std::string(indent + 2, ' ');
    if (is_object) text += OrderedJson(name).dump() + ": ";
    append_lines(text, value, indent + 2);
    separator = ",\n";
  }
  text += '\n' + std::string(indent, ' ') + (is_object ? '}' : ']');
}

// --- fingerprint ---

/// FNV-1a of names and values in the order of the fields (Fowler, Noll, Vo; RFC 9923).
class MachineHasher {
 public:
  std::uint64_t value() const { return hash_; }

  template <class T>
  void operator()(const std::string& name, const T& value, const Range& = {}) {
    add(name);
    add(value);
  }
  template <class F>
  void object(const std::string& name, const F& visit) {
    add(name);
    visit(*this);
  }
  template <class T, class F>
  void list(const std::string& name, const std::vector<T>& values, const F& visit) {
    (*this)(name, values.size());
    for (const T& value : values) visit(value, *this);
  }
  template <class T, class F>
  void list(const std::string& name, const char*, const std::map<std::string, T>& values, const F& visit) {
    (*this)(name, values.size());
    for (const auto& [text, value] : values) {
      add(text);
      visit(value, *this);
    }
  }
  template <class T>
  void numbers(const std::string& name, const std::vector<T>& values, const Range&) {
    (*this)(name, values.size());
    for (const T value : values) add(value);
  }
  template <class T>
  void choice(const std::string& name, T value, const Names<T>&) {
    (*this)(name, static_cast<std::int64_t>(value));
  }
  template <class T>
  void by_choice(const std::string& name, const std::map<T, double>& values, const Names<T>&, const Range&) {
    (*this)(name, values.size());
    for (const auto& [key, value] : values) {
      add(static_cast<std::int64_t>(key));
      add(value);
    }
  }

 private:
  void add(const std::string& text) {
    add(text.size());
    add_bytes(std::as_bytes(std::span(text)));
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void add(T value) { add_bytes(std::as_bytes(std::span(&value, 1))); }
  void add_bytes(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) hash_ = (hash_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  }

  std::uint64_t hash_ = 0xcbf29ce484222325;
};

// --- reading ---

std::string short_text(const Json& value) {
  constexpr std::size_t most = 60;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > most) text = text.substr(0, most) + "…";
  return printable(text);
}

std::string text_of(const Range& range, bool integer) {
  std::string text = integer ? "an integer" : "a number";
  if (*range.unit != '\0') text += std::string(" of ") + range.unit;
  text += " from " + six_digits_text(range.least) + " to " + six_digits_text(range.most);
  return range.or_zero ? text + ", or 0 for \"not known\"" : text;
}

bool contains(const Range& range, double number) {
  return (number >= range.least && number <= range.most) || (range.or_zero && number == 0);
}

class MachineReader {
 public:
  MachineReader(const Json& object, const std::string& source, std::string place)
      : object_(object), source_(source), place_(std::move(place)) {
    if (!object.is_object()) fail(place_, short_text(object), "an object {…}");
  }

  void operator()(const std::string& name, bool& value) {
    const Json& json = get(name, "true or false");
    if (!json.is_boolean()) fail(path(name), short_text(json), "true or false");
    value = json.get<bool>();
  }
  void operator()(const std::string& name, std::string& value) {
    const Json& json = get(name, "a text \"…\"");
    if (!json.is_string() || json.get_ref<const std::string&>().empty())
      fail(path(name), short_text(json), "a text \"…\" of at least one character");
    value = json.get<std::string>();
  }
  template <class T>
  requires std::integral<T> || std::floating_point<T>
  void operator()(const std::string& name, T& value, const Range& range) {
    const Json& json = get(name, [&] { return text_of(range, std::integral<T>); });
    value = number<T>(json, range, [&] { return path(name); });
  }

  template <class F>
  void object(const std::string& name, const F& visit) {
    MachineReader inner(get(name, "an object {…}"), source_, path(name));
    visit(inner);
    inner.check_unknown();
  }
  template <class T, class F>
  void list(const std::string& name, std::vector<T>& values, const F& visit) {
    for_elements(name, [&](MachineReader& inner) { visit(values.emplace_back(), inner); });
  }
  template <class T, class F>
  void list(const std::string& name, const char* key, std::map<std::string, T>& values, const F& visit) {
    for_elements(name, [&](MachineReader& inner) {
      std::string text;
      inner(key, text);
      const auto [place, is_new] = values.try_emplace(text);
      if (!is_new) inner.fail(inner.path(key), short_text(text), "another one in each element of the list");
      visit(place->second, inner);
    });
  }
  template <class T>
  void numbers(const std::string& name, std::vector<T>& values, const Range& range) {
    const Json& json = get(name, "a list of numbers");
    if (!json.is_array()) fail(path(name), short_text(json), "a list of numbers");
    values.reserve(json.size());
    for (const Json& element : json)
      values.push_back(number<T>(element, range, [&] { return place_of_element(name, values.size()); }));
  }
  template <class T>
  void choice(const std::string& name, T& value, const Names<T>& names) {
    std::string text;
    (*this)(name, text);
    value = value_named(path(name), text, names);
  }
  template <class T>
  void by_choice(const std::string& name, std::map<T, double>& values, const Names<T>& names, const Range& range) {
    object(name, [&](MachineReader& inner) {
      for (const auto& [text, json] : inner.object_.items()) {
        inner.known_.push_back(text);
        const std::string place = inner.path(text);
        values[value_named(place, text, names)] = number<double>(json, range, [&] { return place; });
      }
    });
  }

  /// Throws for a member that no reader has asked for.
  void check_unknown() const {
    for (const auto& [name, value] : object_.items())
      if (std::ranges::find(known_, name) == known_.end()) fail(path(name), "unknown", one_of(name, known_));
  }
  [[noreturn]] void fail(const std::string& place, const std::string& found, const std::string& expectation) const {
    throw InvalidArgument(parse_operation, printable(source_) + (place.empty() ? "" : ": " + printable(place)), found,
                          expectation);
  }
  std::string path(const std::string& name) const { return place_.empty() ? name : place_ + "." + name; }
  /// `expectation`: returns a text for the error. Numbers of a large table would make a hundred thousand of them.
  template <class F>
  const Json& get(const std::string& name, const F& expectation) {
    known_.push_back(name);
    const auto found = object_.find(name);
    if (found == object_.end()) fail(path(name), "missing", expectation());
    return *found;
  }
  const Json& get(const std::string& name, const char* expectation) {
    return get(name, [&] { return expectation; });
  }

 private:
  std::string place_of_element(const std::string& name, std::size_t i) const {
    return path(name) + "[" + std::to_string(i) + "]";
  }

  template <class F>
  void for_elements(const std::string& name, const F& f) {
    const Json& json = get(name, "a list […]");
    if (!json.is_array()) fail(path(name), short_text(json), "a list […]");
    for (std::size_t i = 0; i < json.size(); ++i) {
      MachineReader inner(json[i], source_, place_of_element(name, i));
      f(inner);
      inner.check_unknown();
    }
  }
  template <class T>
  T value_named(const std::string& place, const std::string& text, const Names<T>& names) const {
    const auto found = std::ranges::find(names, text, &Names<T>::value_type::second);
    if (found != names.end()) return found->first;
    std::vector<std::string> texts;
    for (const auto& [value, known] : names) texts.push_back(known);
    fail(place, short_text(text), one_of(text, texts));
  }
  template <class T, class Place>
  T number(const Json& json, const Range& range, const Place& place) const {
    // An integer of 64 bits may be larger than those of T.
    const bool fits = std::floating_point<T> ? json.is_number()
                      : json.is_number_unsigned()
                          ? json.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<T>::max())
                          : json.is_number_integer();
    if (!fits || !contains(range, json.get<double>()))
      fail(place(), short_text(json), text_of(range, std::integral<T>));
    return json.get<T>();
  }

  const Json& object_;
  const std::string& source_;
  std::string place_;
  std::vector<std::string> known_;
};

/// A parser's callback cannot see that a name comes twice in an object; the sequence of its events shows it.
Json parse_json(std::string_view text, const std::string& source) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    if (depth > deepest) too_deep = true;
    return depth <= deepest;  // what is deeper is not kept: to print or to compare it would take a deep stack
  };
  constexpr const char* expectation = "a machine as JSON (docs/machines.md)";
  Json json;
  try {
    json = Json::parse(text, watch);
  } catch (const Json::exception& e) {
    throw InvalidArgument(parse_operation, printable(source), printable(e.what()), expectation);
  }
  if (too_deep) throw InvalidArgument(parse_operation, printable(source), "lists in lists in lists", expectation);
  if (!twice.empty()) {
    throw InvalidArgument(parse_operation, printable(source) + ": " + printable(twice), "twice",
                          "each name once in an object");
  }
  return json;
}

/// Adds the fields that later versions of the format have. Fields of an object keep no order.
void bring_up_to_date(Json& json) {
  if (!json.is_object() || !json.contains(version_name)) return;
  const Json version = json[version_name];
  if (!version.is_number_integer() || version < first_machine_file_version || version >= machine_file_version) return;
  json[version_name] = machine_file_version;
  const auto planning = json.find("planning");
  const bool has_planning = planning != json.end() && planning->is_object();
  // A field that is there already is one of a later version, and stays: it is read as such.
  if (has_planning) planning->emplace("consolidate_below", default_consolidate_below);
  if (version == 11) return;
  const auto leave_out = [&](const char* list) {
    if (const auto all = json.find(list); all != json.end() && all->is_array())
      std::erase_if(all->get_ref<Json::array_t&>(), [](const Json& element) { return element.is_object(); });
  };
  leave_out("learned");  // from features with another meaning
  if (version == 10) return;
  leave_out("kernels");  // measured alone; times in steps are others
  if (version >= 8) return;
  if (has_planning) planning->emplace("product_bytes", MachineDescription{}.product_bytes);
  if (version == 7) return;
  const auto processor = json.find("processor");
  const bool has_processor = processor != json.end() && processor->is_object();
  if (has_processor) processor->emplace("host_bandwidth", 0);
  if (version >= 5) return;
  if (has_processor) processor->emplace("float16_flops", 0);
  if (version == 4) return;
  json.emplace("transfers", Json::array());
  if (version != 2) return;
  for (const char* const list : {"collectives", "convolutions"}) json.emplace(list, Json::array());
  if (has_planning) planning->emplace("compute_capability", 0);
}

// --- rules between fields ---

using Fault = std::tuple<std::string, std::string, std::string>;  // path, value, expectation

void check_length(const std::string& place, std::size_t length, std::size_t expected) {
  if (length != expected) {
    throw Fault(place, "a list of " + std::to_string(length) + " numbers",
                "a list of " + std::to_string(expected) + " numbers");
  }
}

void check_network(const Perceptron& network, std::size_t features, const std::string& place) {
  if (network.layers.empty()) throw Fault(place + ".layers", "[]", "a list of at least one layer");
  std::size_t inputs = features;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const DenseLayer& layer = network.layers[l];
    const std::string here = place + ".layers[" + std::to_string(l) + "]";
    const auto in = static_cast<std::size_t>(layer.inputs), out = static_cast<std::size_t>(layer.outputs);
    if (in != inputs) {
      throw Fault(
          here + ".inputs", std::to_string(in),
          std::to_string(inputs) + (l == 0 ? ", the features of the kind" : ", the outputs of the layer before"));
    }
    check_length(here + ".weights", layer.weights.size(), in * out);
    check_length(here + ".biases", layer.biases.size(), out);
    inputs = out;
  }
  if (inputs != 1) {
    throw Fault(place + ".layers[" + std::to_string(network.layers.size() - 1) + "].outputs", std::to_string(inputs),
                "1, the predicted time");
  }
}

void check_learned(const LearnedKernel& model, const std::string& place) {
  const std::size_t features = feature_names(model.kind).size();
  for (const auto& [name, values] : {std::pair("mean", &model.mean), std::pair("deviation", &model.deviation),
                                     std::pair("least", &model.least), std::pair("largest", &model.largest)})
    check_length(place + "." + name, values->size(), features);
  for (std::size_t f = 0; f < features; ++f) {
    if (model.least[f] > model.largest[f]) {
      throw Fault(place + ".least[" + std::to_string(f) + "]", std::to_string(model.least[f]),
                  "at most largest[" + std::to_string(f) + "], " + std::to_string(model.largest[f]));
    }
  }
  if (model.networks.empty()) throw Fault(place + ".networks", "[]", "a list of at least one network");
  for (std::size_t n = 0; n < model.networks.size(); ++n)
    check_network(model.networks[n], features, place + ".networks[" + std::to_string(n) + "]");
}

void check_rates(const std::vector<SizeFactor>& rates, const std::string& place) {
  if (rates.empty()) throw Fault(place, "[]", "a list of at least one rate");
  for (std::size_t i = 1; i < rates.size(); ++i) {
    if (rates[i].bytes > rates[i - 1].bytes) continue;
    throw Fault(place + "[" + std::to_string(i) + "].bytes", std::to_string(rates[i].bytes),
                "more than those of the rate before, " + std::to_string(rates[i - 1].bytes));
  }
}

void check_collective(const CollectiveFit& fit, const std::string& place) {
  if (!comm::is_variant({fit.operation, fit.method})) {
    throw Fault(place + ".method", std::string(name(fit.method)),
                "a method of " + std::string(name(fit.operation)) + " (comm::collective_variants)");
  }
  if (fit.nodes > fit.ranks) {
    throw Fault(place + ".nodes", std::to_string(fit.nodes), "at most the " + std::to_string(fit.ranks) + " ranks");
  }
  check_rates(fit.rates, place + ".rates");
}

void check_transfer_fit(const TransferFit& fit, const std::string& place) {
  if (!can_take(fit.method, fit.link)) {
    throw Fault(place + ".link", std::string(name(fit.link)),
                fit.method == TransferMethod::copies ? "shared_memory"
                : fit.method == TransferMethod::send ? "within_node or between_nodes"
                                                     : "shared_memory, within_node or between_nodes");
  }
  if (fit.shared_data && (fit.method != TransferMethod::send || fit.link != LinkKind::within_node))
    throw Fault(place + ".shared_data", "true", "false, but for send within_node");
  check_rates(fit.rates, place + ".rates");
}

/// Throws for the second of two elements with equal keys.
template <class T, class F>
void check_different(const std::string& name, const std::vector<T>& values, const char* key_text, const F& key_of) {
  std::set<decltype(key_of(values.front()))> keys;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!keys.insert(key_of(values[i])).second)
      throw Fault(name + "[" + std::to_string(i) + "]", "the second one", std::string("one for each ") + key_text);
  }
}

void check_rules(const Machine& machine) {
  check_different("all_reduces", machine.all_reduces, "number of ranks and nodes",
                  [](const comm::Tuning& t) { return std::pair(t.ranks, t.nodes); });
  for (std::size_t i = 0; i < machine.all_reduces.size(); ++i) {
    const comm::Tuning& tuning = machine.all_reduces[i];
    if (tuning.nodes > tuning.ranks)
      throw Fault("all_reduces[" + std::to_string(i) + "].nodes", std::to_string(tuning.nodes),
                  "at most the " + std::to_string(tuning.ranks) + " ranks");
  }
  check_different(
      "collectives", machine.collectives, "operation, method, place of the data, ranks and nodes",
      [](const CollectiveFit& f) { return std::tuple(f.operation, f.method, f.shared_data, f.ranks, f.nodes); });
  for (std::size_t i = 0; i < machine.collectives.size(); ++i)
    check_collective(machine.collectives[i], "collectives[" + std::to_string(i) + "]");
  check_different("transfers", machine.transfers, "method, link and place of the data",
                  [](const TransferFit& f) { return std::tuple(f.method, f.link, f.shared_data); });
  for (std::size_t i = 0; i < machine.transfers.size(); ++i)
    check_transfer_fit(machine.transfers[i], "transfers[" + std::to_string(i) + "]");
  check_different("kernels", machine.kernels, "layout of processes",
                  [](const KernelTable& t) { return std::pair(t.ranks_per_node, t.threads_per_rank); });
  check_different(
      "convolutions", machine.convolutions, "layout of processes and kind of device",
      [](const ConvolutionTable& t) { return std::tuple(t.ranks_per_node, t.threads_per_rank, t.compute_capability); });
  check_different("learned", machine.learned, "kind, type and layout of processes", [](const LearnedKernel& m) {
    return std::tuple(m.kind, m.type, m.ranks_per_node, m.threads_per_rank);
  });
  for (std::size_t i = 0; i < machine.learned.size(); ++i)
    check_learned(machine.learned[i], "learned[" + std::to_string(i) + "]");
}

}  // namespace

std::string to_json_text(const Machine& machine) {
  OrderedJson json, fields;
  MachineWriter writer(fields);
  detail::visit_machine(machine, writer);
  json[version_name] = machine_file_version;
  json.update(fields);
  std::string text;
  append_lines(text, json, 0);
  text += '\n';
  if (parse_machine(text, "the machine " + machine.name) == machine) return text;
  throw InvalidArgument("aloni::model::to_json_text", "machine", printable(machine.name),
                        "texts in UTF-8, types of elements of kernels, and no planning.nodes, planning.tuning and "
                        "planning.convolutions, which description_of() makes");
}

std::uint64_t fingerprint(const Machine& machine) {
  MachineHasher hasher;
  detail::visit_machine(machine, hasher);
  return hasher.value();
}

Machine parse_machine(std::string_view text, const std::string& source) {
  Json json = parse_json(text, source);
  bring_up_to_date(json);
  MachineReader reader(json, source, "");
  const Json& version =
      reader.get(version_name, [] { return std::to_string(machine_file_version) + ", the version of the format"; });
  if (version != machine_file_version) {
    reader.fail(version_name, short_text(version),
                std::to_string(machine_file_version) + ", the version of the format, or an earlier one from " +
                    std::to_string(first_machine_file_version) + " on");
  }
  Machine machine;
  detail::visit_machine(machine, reader);
  reader.check_unknown();
  try {
    check_rules(machine);
  } catch (const Fault& fault) {
    reader.fail(std::get<0>(fault), std::get<1>(fault), std::get<2>(fault));
  }
  return machine;
}

Machine read_machine(const std::string& path) { return parse_machine(read_machine_text(path), path); }

std::string read_machine_text(const std::string& path) {
  return read_text_file("aloni::model::read_machine", path, "a machine file", most_file_bytes);
}

}  // namespace aloni::model
