#pragma once
// Networks as JSON files: docs/model_files.md describes the format. Pure.
//
//   const NetworkDescription net = read_model_file("my_network.json");
//   const std::string text = to_json(make_model("resnet18"));
#include <aloni/nn/network_description.hpp>

#include <string>
#include <string_view>

namespace aloni::nn {

/// The network as JSON. Members with their default values, and inputs that are the layer before, are left out.
/// network_from_json() of the text gives the same network.
/// @pre infer_extents(network, 1) throws nothing
std::string to_json(const NetworkDescription& network);

/// The network that a JSON text describes, checked as infer_extents() checks it. `source`: the name of the text in
/// errors, for example the path of its file.
/// Throws FileError for a text that is no JSON, and for a member that is unknown, missing, duplicate, of another type
/// or out of range. The error names the layer and the member, and the nearest known name. Throws InvalidArgument as
/// infer_extents(). Not collective, and equal on all ranks that pass equal texts.
NetworkDescription network_from_json(std::string_view text, const std::string& source);

/// As above, for a regular file of at most 1 MiB. Throws FileError also if it cannot be read. Not collective: wrap it
/// in comm::collectively.
NetworkDescription read_model_file(const std::string& path);

}  // namespace aloni::nn
