#pragma once
// The fields of a machine file: name, order and range of each, once for the reader and for the writer. A visitor has
// these members:
//
//   v(name, value, range)                 a number, bool or text; `range` of numbers only
//   v.object(name, visit)                 calls visit(inner visitor)
//   v.list(name, vector, visit)           calls visit(element, inner visitor) for each element
//   v.list(name, key, map, visit)         the same; the name of the element is the text `key` of its object
//   v.numbers(name, vector, range)
//   v.choice(name, value, names)          one of the texts of a table
//   v.by_choice(name, map, names, range)  an object with a number for some texts of the table
#include <aloni/model/machine.hpp>
#include <aloni/nn/local/convolution_times.hpp>

#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::model::detail {

/// Wide bounds: a value outside them is a wrong unit, or a mistyped exponent.
struct Range {
  double least = 0, most = 0;
  const char* unit = "";
  bool or_zero = false;  ///< zero is in the range too: "not known"
};

inline constexpr double most_bytes = 1e16, most_count = 1e6;
inline constexpr Range duration{0, 10, "seconds"};
inline constexpr Range time_per_byte{1e-16, 1e-3, "seconds per byte", true};
inline constexpr Range bandwidth{1e3, 1e16, "bytes per second"};
inline constexpr Range bandwidth_or_zero{1e3, 1e16, "bytes per second", true};
inline constexpr Range flop_rate{1e6, 1e18, "flops per second"};
inline constexpr Range flop_rate_or_zero{1e6, 1e18, "flops per second", true};
inline constexpr Range size{0, most_bytes, "bytes"};
inline constexpr Range size_above_zero{1, most_bytes, "bytes"};
inline constexpr Range size_or_unlimited{0, static_cast<double>(unlimited_bytes), "bytes"};
inline constexpr Range count{1, most_count, ""};
inline constexpr Range ratio{0, 10, ""};
inline constexpr Range share{0, 1, ""};
inline constexpr Range multiplications{0, 1e18, "multiplications"};
inline constexpr Range pixels{0, 1e12, "pixels"};
inline constexpr Range logarithm{-1000, 1000, ""};
inline constexpr Range deviation{1e-12, 1000, ""};
inline constexpr Range any_float{-3e38, 3e38, ""};
inline constexpr Range factor{0, 1e9, ""};
inline constexpr Range feature{0, 1e300, ""};

/// Texts of an enumeration, by its values.
template <class T>
using Names = std::vector<std::pair<T, std::string>>;

/// The first `count` values of an enumeration without gaps, and their name().
template <class T>
Names<T> first_names(int count) {
  Names<T> all;
  for (int i = 0; i < count; ++i) all.emplace_back(static_cast<T>(i), name(static_cast<T>(i)));
  return all;
}

inline const Names<KernelKind>& names_of_kinds() {
  static const auto names = first_names<KernelKind>(kernel_kinds);
  return names;
}
inline const Names<nn::ElementType>& names_of_types() {
  static const Names<nn::ElementType> names{{nn::ElementType::float32, "float32"},
                                            {nn::ElementType::float64, "float64"},
                                            {nn::ElementType::bfloat16, "bfloat16"},
                                            {nn::ElementType::float16, "float16"}};
  return names;
}
inline const Names<comm::AllReduceAlgorithm>& names_of_algorithms() {
  static const auto names = [] {
    Names<comm::AllReduceAlgorithm> all;
    for (const auto a : comm::all_reduce_algorithms) all.emplace_back(a, to_string(a));
    return all;
  }();
  return names;
}

inline const Names<comm::OperationKind>& names_of_collectives() {
  static const auto names = [] {
    Names<comm::OperationKind> all;
    for (const auto& variant : comm::collective_variants)
      if (all.empty() || all.back().first != variant.operation)
        all.emplace_back(variant.operation, comm::name(variant.operation));
    return all;
  }();
  return names;
}
inline const Names<comm::CollectiveMethod>& names_of_methods() {
  static const auto names = first_names<comm::CollectiveMethod>(static_cast<int>(comm::CollectiveMethod::pairwise) + 1);
  return names;
}

inline const Names<TransferMethod>& names_of_transfer_methods() {
  static const auto names = first_names<TransferMethod>(transfer_methods);
  return names;
}
inline const Names<LinkKind>& names_of_links() {
  static const auto names = first_names<LinkKind>(static_cast<int>(link_kinds));
  return names;
}

/// A ConvolutionTable with the texts of its problems.
struct ConvolutionTexts {
  Index most_workspace_bytes = 0;
  std::map<std::string, std::vector<ImplementationTime>> problems = {};
};
inline ConvolutionTexts texts_of(const ConvolutionTable& table) {
  ConvolutionTexts texts{.most_workspace_bytes = table.measured.most_workspace_bytes()};
  for (const auto& [numbers, times] : table.measured.times()) {
    const auto problem = nn::local::convolution_case_of(numbers);
    texts.problems[problem ? to_string(*problem) : ""] = times;  // "" is refused when the text is read again
  }
  return texts;
}
inline constexpr const char* expected_convolutions =
    "problems as nn/local/convolution_times.hpp writes them, each with at least one time, and with the names of "
    "implementations, each once: direct, onednn, kokkos_kernels, reference, cudnn, cudnn engine 3";
/// Sets the table. The result is the first faulty text; empty: there is none.
inline std::string take_texts(const ConvolutionTexts& texts, ConvolutionTable& table) {
  MeasuredImplementations::Times all;
  for (const auto& [text, times] : texts.problems) {
    const auto problem = nn::local::parse_convolution_case(text);
    if (!problem || times.empty()) return text;
    std::set<std::string> names;
    for (const ImplementationTime& time : times)
      if (!nn::local::convolution_implementation_named(time.implementation) ||
          !names.insert(time.implementation).second)
        return text + ": " + time.implementation;
    all[numbers_of(*problem)] = times;
  }
  table.measured = MeasuredImplementations(std::move(all), texts.most_workspace_bytes);
  return {};
}

// `M`: the type below, const for a writer.

template <class M, class V>
void visit_planning(M& m, V& v) {
  v("shared_memory", m.shared_memory);
  v("direct_bytes", m.direct_bytes, size_or_unlimited);
  v("consolidate_below", m.consolidate_below, size_or_unlimited);
  v("fragment_bytes", m.fragment_bytes, size_or_unlimited);
  v("on_host", m.on_host);
  v("progress_thread", m.progress_thread);
  v("interior_overhead_beside_messages", m.interior_overhead_beside_messages, ratio);
  v("interior_overhead_beside_copies", m.interior_overhead_beside_copies, ratio);
  v("pixels_per_call", m.pixels_per_call, pixels);
  v("multiplications_per_copied_element", m.multiplications_per_copied_element, multiplications);
  v("chunk_bytes", m.chunk_bytes, size_above_zero);
  v("most_chunks", m.most_chunks, count);
  v("multiplications_per_slab", m.multiplications_per_slab, Range{1, multiplications.most, multiplications.unit});
  v("most_slabs", m.most_slabs, count);
  v("onednn", m.onednn);
  v("onednn_bfloat16", m.onednn_bfloat16);
  v("kokkos_kernels", m.kokkos_kernels);
  v("cudnn", m.cudnn);
  v("filter_gradient_bytes", m.filter_gradient_bytes, size);
  v("compute_capability", m.compute_capability, Range{0, 999, ""});
  v("library_bytes", m.library_bytes, size);
  v("kernel_bytes", m.kernel_bytes, size);
  v("product_bytes", m.product_bytes, size);
  v("node_bytes", m.node_bytes, size);
  v("page_bytes", m.page_bytes, size_above_zero);
  v("bucket_bytes", m.bucket_bytes, size_above_zero);
}

template <class M, class V>
void visit_processor(M& p, V& v) {
  v("name", p.name);
  v("cores_per_node", p.cores_per_node, count);
  v("float32_flops", p.float32_flops, flop_rate);
  v("float64_flops", p.float64_flops, flop_rate_or_zero);
  v("bfloat16_flops", p.bfloat16_flops, flop_rate_or_zero);
  v("float16_flops", p.float16_flops, flop_rate_or_zero);
  v("core_bandwidth", p.core_bandwidth, bandwidth);
  v("node_bandwidth", p.node_bandwidth, bandwidth);
  v("core_cache_bytes", p.core_cache_bytes, size);
  v("node_cache_bytes", p.node_cache_bytes, size);
  v("core_cache_bandwidth", p.core_cache_bandwidth, bandwidth_or_zero);
  v("node_cache_bandwidth", p.node_cache_bandwidth, bandwidth_or_zero);
  v("host_bandwidth", p.host_bandwidth, bandwidth_or_zero);
  v("kernel_seconds", p.kernel_seconds, duration);
  v.by_choice("efficiency", p.efficiency, names_of_kinds(), share);
}

template <class M, class V>
void visit_link(M& link, V& v) {
  v("latency", link.latency, duration);
  v("seconds_per_byte", link.seconds_per_byte, time_per_byte);
  v("seconds_per_message", link.seconds_per_message, duration);
}

template <class M, class V>
void visit_tuning(M& tuning, V& v) {
  v("ranks", tuning.ranks, count);
  v("nodes", tuning.nodes, count);
  v("latency", tuning.latency, duration);
  v("seconds_per_byte", tuning.seconds_per_byte, time_per_byte);
  v("combine_seconds_per_byte", tuning.combine_seconds_per_byte, time_per_byte);
  v.list("measurements", tuning.measurements, [](auto& measurement, auto& inner) {
    inner.choice("algorithm", measurement.algorithm, names_of_algorithms());
    inner("bytes", measurement.bytes, size_above_zero);
    inner("seconds", measurement.seconds, Range{0, 1e6, "seconds"});
    inner("part_bytes", measurement.part_bytes, size);
  });
}

/// The constants of a CollectiveFit or a TransferFit.
template <class M, class V>
void visit_fit(M& fit, V& v) {
  v("seconds_per_call", fit.seconds_per_call, duration);
  v("message_factor", fit.message_factor, factor);
  v.list("rates", fit.rates, [](auto& rate, auto& inner) {
    inner("bytes", rate.bytes, size_above_zero);
    inner("factor", rate.factor, factor);
  });
  v("error", fit.error, factor);
  v("links_error", fit.links_error, factor);
}

template <class M, class V>
void visit_collective(M& fit, V& v) {
  v.choice("operation", fit.operation, names_of_collectives());
  v.choice("method", fit.method, names_of_methods());
  v("shared_data", fit.shared_data);
  v("ranks", fit.ranks, count);
  v("nodes", fit.nodes, count);
  visit_fit(fit, v);
}

template <class M, class V>
void visit_transfer(M& fit, V& v) {
  v.choice("method", fit.method, names_of_transfer_methods());
  v.choice("link", fit.link, names_of_links());
  v("shared_data", fit.shared_data);
  visit_fit(fit, v);
}

template <class M, class V>
void visit_layout(M& m, V& v) {
  v("ranks_per_node", m.ranks_per_node, count);
  v("threads_per_rank", m.threads_per_rank, count);
}

template <class M, class V>
void visit_table(M& table, V& v) {
  visit_layout(table, v);
  v.list("times", "kernel", table.times, [](auto& time, auto& inner) {
    inner("seconds", time.seconds, Range{0, 1e6, "seconds"});
    inner("spread", time.spread, Range{0, 1e6, ""});
    inner("runs", time.runs, count);
  });
}

/// The text of a problem stands for its numbers. A reader throws for a text that is not one of a convolution.
template <class M, class V>
void visit_convolutions(M& table, V& v) {
  visit_layout(table, v);
  v("compute_capability", table.compute_capability, Range{0, 999, ""});
  ConvolutionTexts texts = texts_of(table);
  v("most_workspace_bytes", texts.most_workspace_bytes, size);
  v.list("problems", "problem", texts.problems, [](auto& times, auto& inner) {
    inner.list("times", times, [](auto& time, auto& member) {
      member("implementation", time.implementation);
      member("seconds", time.seconds, Range{1e-12, 1e6, "seconds"});
      member("spread", time.spread, Range{0, 1e6, ""});
      member("runs", time.runs, count);
      member("workspace_bytes", time.workspace_bytes, size);
    });
  });
  if constexpr (!std::is_const_v<M>) {
    const auto fault = take_texts(texts, table);
    if (!fault.empty()) v.fail(v.path("problems"), fault, expected_convolutions);
  }
}

template <class M, class V>
void visit_learned(M& model, V& v) {
  v.choice("kind", model.kind, names_of_kinds());
  v.choice("type", model.type, names_of_types());
  visit_layout(model, v);
  v("per_call", model.per_call, Range{1e-12, 10, "seconds"});
  v("per_flop", model.per_flop, Range{0, 1, "seconds per flop"});
  v("per_byte", model.per_byte, Range{0, 1, "seconds per byte"});
  v.numbers("mean", model.mean, logarithm);
  v.numbers("deviation", model.deviation, deviation);
  v("seconds_mean", model.seconds_mean, logarithm);
  v("seconds_deviation", model.seconds_deviation, deviation);
  v.numbers("least", model.least, feature);
  v.numbers("largest", model.largest, feature);
  v.list("networks", model.networks, [](auto& network, auto& member) {
    member.list("layers", network.layers, [](auto& layer, auto& inner) {
      inner("inputs", layer.inputs, count);
      inner("outputs", layer.outputs, count);
      inner.numbers("weights", layer.weights, any_float);
      inner.numbers("biases", layer.biases, any_float);
    });
  });
  v("relative_error", model.relative_error, Range{0, 1e6, ""});
}

template <class M, class V>
void visit_machine(M& m, V& v) {
  v("name", m.name);
  v.list("provenance", m.provenance, [](auto& p, auto& inner) {
    inner("part", p.part);
    inner("text", p.text);
  });
  visit_layout(m, v);
  v("most_nodes", m.most_nodes, Range{0, 1e9, ""});
  v("memory_bytes", m.memory_bytes, Range{1 << 20, most_bytes, "bytes", true});
  v.object("planning", [&](auto& inner) { visit_planning(m.planning, inner); });
  v.object("processor", [&](auto& inner) { visit_processor(m.processor, inner); });
  v.object("links", [&](auto& inner) {
    for (std::size_t k = 0; k < link_kinds; ++k) {
      inner.object(std::string(name(static_cast<LinkKind>(k))), [&](auto& link) { visit_link(m.links[k], link); });
    }
  });
  v("combine_seconds_per_byte", m.combine_seconds_per_byte, time_per_byte);
  v("exchange_seconds", m.exchange_seconds, duration);
  v.list("all_reduces", m.all_reduces, [](auto& tuning, auto& inner) { visit_tuning(tuning, inner); });
  v.list("collectives", m.collectives, [](auto& fit, auto& inner) { visit_collective(fit, inner); });
  v.list("transfers", m.transfers, [](auto& fit, auto& inner) { visit_transfer(fit, inner); });
  v.list("kernels", m.kernels, [](auto& table, auto& inner) { visit_table(table, inner); });
  v.list("convolutions", m.convolutions, [](auto& table, auto& inner) { visit_convolutions(table, inner); });
  v.list("learned", m.learned, [](auto& model, auto& inner) { visit_learned(model, inner); });
}

}  // namespace aloni::model::detail
