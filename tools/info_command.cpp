#include <aloni/core/blas_library.hpp>
#include <aloni/core/comm/device_links.hpp>
#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/comm/view_all_reduce.hpp>
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/version.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/step_recorder.hpp>
#include <aloni/nn/stream_plan.hpp>
#include <aloni/tools/info_command.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/together.hpp>

#include <mpi.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::tools {

namespace {

using Json = nlohmann::ordered_json;

std::string compiler() {
#if defined(__clang__)
  return std::string("Clang ") + __clang_version__;
#elif defined(__GNUC__)
  return std::string("GCC ") + __VERSION__;
#else
  return "unknown";
#endif
}

std::string kokkos_version() {
  return std::to_string(KOKKOS_VERSION / 10000) + "." + std::to_string(KOKKOS_VERSION / 100 % 100) + "." +
         std::to_string(KOKKOS_VERSION % 100);
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

// Kokkos has at most three: one on a device, a parallel one on the host, and Serial.
std::vector<std::string> execution_spaces() {
  std::vector<std::string> names{Kokkos::DefaultExecutionSpace::name()};
  const auto add = [&](const char* name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  add(Kokkos::DefaultHostExecutionSpace::name());
#ifdef KOKKOS_ENABLE_SERIAL
  add(Kokkos::Serial::name());
#endif
  return names;
}

constexpr bool has_device = !std::is_same_v<Kokkos::DefaultExecutionSpace, Kokkos::DefaultHostExecutionSpace>;

Json json_of(const MachineDescription& machine) {
  Json json;
  for (const MachineField& field : fields_of(machine))
    std::visit([&](auto value) { json[std::string(field.name)] = value; }, field.value);
  json["node_of_rank"] = machine.nodes;
  return json;
}

/// Devices by rank, and how many pairs of ranks use each way between them. Collective.
Json describe_device_links(const comm::Communicator& comm) {
  const comm::DeviceLinks links = comm::describe_devices(comm);
  Json json;
  for (std::size_t r = 0; r < links.devices.size(); ++r) json["rank_" + std::to_string(r)] = links.devices[r];
  for (const auto& [way, pairs] : links.pairs()) json["pairs"][name(way)] = pairs;
  using Exec = Kokkos::DefaultExecutionSpace;
  const Kokkos::View<float*, Exec::memory_space> sample("aloni::tools::info: a sum", 1);
  switch (comm::ViewAllReduce<float, Exec>(comm, Queue<Exec>(), sample).way()) {
    case comm::ViewAllReduceWay::device_library:
      json["sums"] = "NCCL";
      break;
    case comm::ViewAllReduceWay::direct:
      json["sums"] = "kernels that read and write the other devices";
      break;
    case comm::ViewAllReduceWay::on_host:
      json["sums"] = "on the host";
      break;
  }
  return json;
}

/// Whether steps can repeat recorded kernels.
std::string graphs() {
  if (nn::make_step_recorder<Kokkos::DefaultExecutionSpace>())
    return "with aloni train --record; aloni plan --machine says of which kernels";
  return has_device ? "no: not for this device" : "no: this build has no device";
}

Json collect(const comm::Communicator& comm) {
  Json info;
  info["version"] = version();
  info["commit"] = git_hash();
  info["compiler"] = compiler();
  info["kokkos"] = kokkos_version();
  info["mpi"] = mpi_version();
  info["execution_spaces"] = execution_spaces();
  info["options"] = {{"onednn", config::has_onednn}, {"kokkos_kernels", config::has_kokkos_kernels},
                     {"lapack", config::has_lapack}, {"nccl", config::has_nccl},
                     {"cudnn", config::has_cudnn},   {"ucx", config::has_ucx},
                     {"zlib", config::has_zlib},     {"hdf5", config::has_hdf5},
                     {"device", has_device},         {"debug_checks", config::debug_checks}};
  info["ranks"] = comm.size();
  info["nodes"] = comm.ranks_by_node().size();
  const int threads = Kokkos::DefaultHostExecutionSpace().concurrency();
  info["threads_per_rank"] = threads;
  if (const BlasLibrary blas = blas_library(); !blas.name.empty()) {
    info["blas"] = {{"library", blas.name}, {"threads_of", name(blas.threading)}, {"threads", blas.threads}};
    if (!blas.kernels.empty()) info["blas"]["kernels_for"] = blas.kernels;
    if (!blas.own_kernels.empty()) info["blas"]["instead_of_kernels_for"] = blas.own_kernels;
    if (blas.competes_with(threads)) {
      info["blas"]["warning"] =
          "its threads and those of Kokkos compete for the cores: install libopenblas-openmp-dev and run "
          "cmake/bootstrap, or set OPENBLAS_NUM_THREADS=1";
    }
  }
  if constexpr (has_device) info["devices"] = describe_device_links(comm);
  info["steps"] = {{"streams", nn::default_streams(!has_device)}, {"graphs", graphs()}};
  info["models"] = nn::model_names();
  return info;
}

std::string cell(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& element : value) text += (text.empty() ? "" : ", ") + cell(element);
  return text;
}

void print_rows(const Json& info, const std::string& indent) {
  for (const auto& [name, value] : info.items()) {
    std::string label = indent + name;
    std::replace(label.begin(), label.end(), '_', ' ');
    if (value.is_object()) {
      std::printf("%s\n", label.c_str());
      print_rows(value, indent + "  ");
    } else {
      std::printf("%-18s %s\n", label.c_str(), cell(value).c_str());
    }
  }
}

}  // namespace

InfoCommand::InfoCommand(CLI::App& app)
    : command_(app.add_subcommand("info", "Print versions, build options, ranks and models")) {
  command_->add_option("--json", json_, "Also write the output to this file, as JSON")->type_name("FILE")->take_last();
}

bool InfoCommand::chosen() const { return command_->parsed(); }

void InfoCommand::check() const {
  if (command_->count("--json") > 0 && json_.empty()) throw UsageError("--json = \"\": expected the path of a file");
}

void InfoCommand::add_to(comm::ReplicatedValues& values) const {
  values.add("--json", std::string(json_.empty() ? "not given" : "given"));
}

void InfoCommand::run(const comm::Communicator& comm) const {
  Json info = collect(comm);
  const MachineDescription machine = comm::describe_machine(comm, nn::local::machine_of_this_build(!has_device));
  comm::collectively(comm, "aloni info", [&] {
    if (comm.rank() != 0) return;
    if (!json_.empty()) check_result_file_can_be_written(json_);
    print_rows(info, "");
    std::puts("machine, as plans see it");
    for (const MachineField& field : fields_of(machine))
      std::printf("  %-53s %s\n", std::string(field.description).c_str(), value_text(field).c_str());
    info["machine"] = json_of(machine);
    if (std::fflush(stdout) != 0) {
      throw FileError("aloni info", "standard output", "cannot be written", "a device with free space for the results");
    }
    if (!json_.empty()) write_result_file(json_, info.dump(2) + "\n");
  });
}

}  // namespace aloni::tools
