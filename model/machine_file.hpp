#pragma once
// Machines as JSON files: docs/machines.md describes the format and the unit of each field. Pure.
//
//   const Machine machine = read_machine("machine.json");
//   const std::string text = to_json_text(machine);
//   parse_machine(text, "again") == machine;
//
// All fields are required: a default would pass for a measured value. Numbers are written with as many digits as their
// bits need. Weights of learned kernels are lists of numbers too: a network of the paper's size has 11,000 of them and
// takes 130 kB. Base64 would halve that, but would need a decoder in each program that reads the file.
#include <aloni/model/machine.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace aloni::model {

/// Of the format. Files from the first version on are read; others are refused. Version 2 had no `collectives`, no
/// `convolutions` and no `planning.compute_capability`. Version 3 had no `transfers`, version
/// 4 no `processor.float16_flops`, version 6 no `processor.host_bandwidth`, and version 7 no `planning.product_bytes`.
/// Before version 10 kernels were measured alone, and models learned from that: both are left out. In version 10 all
/// passes of a layer counted as the same code in the features of models: `learned` is left out.
/// `aloni calibrate --resume` measures and learns them again.
inline constexpr int machine_file_version = 12, first_machine_file_version = 2;

/// Throws InvalidArgument for a machine that parse_machine() would refuse or that would differ: with NaN, a text that
/// is not UTF-8, or `planning.nodes`, `planning.tuning` or `planning.convolutions`, which description_of() makes.
std::string to_json_text(const Machine& machine);

/// Different for different machines but by chance, for keys of caches: milliseconds, where the text takes seconds.
std::uint64_t fingerprint(const Machine& machine);

/// `source`: the name of the text in errors, for example the path of its file.
/// Throws InvalidArgument for a text that is no JSON and for another version. Also for a field that is unknown,
/// missing, duplicate, of another type or out of range. Also for lists of weights whose lengths do not fit, and for two
/// tables of the same processes. Error::argument() has the path of the field: "links.between_nodes.latency". Not
/// collective, and equal on all ranks that pass equal texts.
Machine parse_machine(std::string_view text, const std::string& source);

/// As above, for a regular file of at most 64 MiB. Throws FileError if it cannot be read. Not collective: wrap it in
/// comm::collectively.
Machine read_machine(const std::string& path);
/// The text of such a file, for parse_machine() on other ranks. Throws FileError if it cannot be read. Not collective.
std::string read_machine_text(const std::string& path);

}  // namespace aloni::model
