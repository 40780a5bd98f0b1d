#include <aloni/core/machine.hpp>

#include <iomanip>
#include <set>
#include <sstream>

namespace aloni {

MachineDescription machine_of_nodes(int ranks, int ranks_per_node) {
  MachineDescription machine;
  if (ranks_per_node < 1) return machine;
  for (int r = 0; r < ranks; ++r) machine.nodes.push_back(r / ranks_per_node);
  return machine;
}

int number_of_nodes(const MachineDescription& machine) {
  return machine.nodes.empty() ? 1 : static_cast<int>(std::set<int>(machine.nodes.begin(), machine.nodes.end()).size());
}

std::vector<MachineField> fields_of(const MachineDescription& m) {
  return {
      {"shared_memory", "ranks of a node share memory", m.shared_memory, ""},
      {"direct_bytes", "values copied from another rank's memory, at least", m.direct_bytes, "bytes"},
      {"consolidate_below", "messages between nodes joined into one, mean length below", m.consolidate_below, "bytes"},
      {"fragment_bytes", "fragment of a message between nodes, at most", m.fragment_bytes, "bytes"},
      {"on_host", "kernels run on the host", m.on_host, ""},
      {"progress_thread", "progress thread", m.progress_thread, ""},
      {"interior_overhead_beside_messages", "overhead of an interior beside messages, at most",
       m.interior_overhead_beside_messages, "of the pass"},
      {"interior_overhead_beside_copies", "overhead of an interior beside copies, at most",
       m.interior_overhead_beside_copies, "of the pass"},
      {"pixels_per_call", "cost of a kernel call", m.pixels_per_call, "pixels"},
      {"multiplications_per_copied_element", "cost of copying an element", m.multiplications_per_copied_element,
       "multiplications"},
      {"chunk_bytes", "chunk of partial sums or gathered rows", m.chunk_bytes, "bytes"},
      {"most_chunks", "chunks, at most", Index{m.most_chunks}, ""},
      {"multiplications_per_slab", "slab of an interior", m.multiplications_per_slab, "multiplications"},
      {"most_slabs", "slabs, at most", Index{m.most_slabs}, ""},
      {"onednn", "convolutions by oneDNN", m.onednn, ""},
      {"onednn_bfloat16", "convolutions of bfloat16 by oneDNN", m.onednn_bfloat16, ""},
      {"kokkos_kernels", "convolutions by Kokkos Kernels", m.kokkos_kernels, ""},
      {"cudnn", "convolutions by cuDNN", m.cudnn, ""},
      {"filter_gradient_bytes", "gradient of filters in a thread's cache, at most", m.filter_gradient_bytes, "bytes"},
      {"compute_capability", "compute capability of the device", Index{m.compute_capability}, ""},
      {"convolutions", "convolutions with measured implementations", static_cast<Index>(m.convolutions.size()), ""},
      {"library_bytes", "code and tables that the first step touches", m.library_bytes, "bytes"},
      {"kernel_bytes", "code of a convolution kernel", m.kernel_bytes, "bytes"},
      {"product_bytes", "code of matrix products", m.product_bytes, "bytes"},
      {"node_bytes", "node of a plan", m.node_bytes, "bytes"},
      {"page_bytes", "page", m.page_bytes, "bytes"},
      {"flops_per_copied_byte", "kernels per byte copied to the host", m.work_per_copied_byte.flops, "flops"},
      {"flops_16_bit_per_copied_byte", "kernels of 16 bits per byte copied to the host",
       m.work_per_copied_byte.flops_16_bit, "flops"},
      {"traffic_per_copied_byte", "traffic of kernels per byte copied to the host", m.work_per_copied_byte.traffic,
       "bytes"},
      {"bucket_bytes", "bucket of gradients, at least", m.bucket_bytes, "bytes"},
      {"tuning", "all-reduces chosen by a tuning", m.tuning.has_value(), ""},
  };
}

std::string value_text(const MachineField& field) {
  std::ostringstream text;
  if (const bool* yes = std::get_if<bool>(&field.value)) return *yes ? "yes" : "no";
  if (const Index* number = std::get_if<Index>(&field.value)) {
    if (*number == unlimited_bytes) return "unlimited";
    text << *number;
  } else {
    text << std::setprecision(12) << std::get<double>(field.value);
  }
  if (!field.unit.empty()) text << ' ' << field.unit;
  return text.str();
}

std::string to_string(const MachineDescription& machine) {
  std::string text = "nodes: " + std::to_string(number_of_nodes(machine)) + "\n";
  for (const MachineField& field : fields_of(machine))
    text += std::string(field.description) + ": " + value_text(field) + "\n";
  return text;
}

}  // namespace aloni
