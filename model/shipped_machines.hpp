#pragma once
// The machines of the folder machines/, by name. Their files are part of the library, so that a program on a login node
// finds them wherever it is installed.
//
//   const Machine machine = find_machine("lassen");
//   simulate(network, layers, machine, MachineKernels(machine, machine.ranks_per_node, machine.threads_per_rank));
//
// Their figures come from data sheets and papers, named in Machine::provenance, and are no measurements of kernels.
// For a machine of your own, `aloni calibrate` measures one, and read_machine() (machine_file.hpp) reads it. Pure.
#include <aloni/model/machine.hpp>

#include <string>
#include <vector>

namespace aloni::model {

/// Names of all machines, in alphabetical order.
const std::vector<std::string>& machine_names();

/// Throws InvalidArgument, which lists the names and the nearest one.
Machine find_machine(const std::string& name);

}  // namespace aloni::model
