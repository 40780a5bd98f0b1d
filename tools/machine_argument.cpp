#include <aloni/core/nearest_name.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/tools/machine_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <algorithm>

namespace aloni::tools {

namespace {

bool is_machine_file(const std::string& machine) { return machine.ends_with(".json"); }

}  // namespace

std::string machine_help() {
  return "Machine: " + listed(model::machine_names()) + "; or a machine file, for example of aloni calibrate";
}

void check_machine(const std::string& machine) {
  const auto& names = model::machine_names();
  if (is_machine_file(machine) || std::ranges::find(names, machine) != names.end()) return;
  refuse("--machine", machine.empty() ? "\"\"" : machine,
         "the path of a machine file (*.json), or " + one_of(machine, names));
}

model::Machine read_machine_argument(const std::string& machine) {
  return is_machine_file(machine) ? model::read_machine(machine) : model::find_machine(machine);
}

model::Machine read_machine_argument(const comm::Communicator& comm, const std::string& machine) {
  if (!is_machine_file(machine)) return model::find_machine(machine);
  std::string text = comm::collectively(comm, "aloni --machine", [&]() -> std::string {
    return comm.rank() == 0 ? model::read_machine_text(machine) : "";
  });
  comm.broadcast(text, 0);
  return model::parse_machine(text, machine);
}

}  // namespace aloni::tools
