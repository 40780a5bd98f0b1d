#include <aloni/core/machine.hpp>

#include <sstream>

namespace aloni {

MachineDescription machine_of_nodes(int ranks, int ranks_per_node) {
  MachineDescription machine;
  if (ranks_per_node < 1) return machine;
  for (int r = 0; r < ranks; ++r) machine.nodes.push_back(r / ranks_per_node);
  return machine;
}

std::string to_string(const MachineDescription& m) {
  std::ostringstream text;
  int nodes = 1;
  for (const int n : m.nodes) nodes = n + 1 > nodes ? n + 1 : nodes;
  const auto line = [&](const char* name, const auto& value, const char* unit) {
    text << name << ": " << value << (*unit ? " " : "") << unit << '\n';
  };
  line("nodes", nodes, "");
  line("ranks of a node share memory", m.shared_memory ? "yes" : "no", "");
  line("values copied from another rank's memory, at least", m.direct_bytes, "bytes");
  line("kernels run on the host", m.on_host ? "yes" : "no", "");
  line("progress thread", m.progress_thread ? "yes" : "no", "");
  line("overhead of an interior beside messages, at most", m.interior_overhead_beside_messages, "of the pass");
  line("overhead of an interior beside copies, at most", m.interior_overhead_beside_copies, "of the pass");
  line("cost of a kernel call", m.pixels_per_call, "pixels");
  line("cost of copying an element", m.multiplications_per_copied_element, "multiplications");
  line("chunk of partial sums or gathered rows", m.chunk_bytes, "bytes");
  line("chunks, at most", m.most_chunks, "");
  line("slab of an interior", m.multiplications_per_slab, "multiplications");
  line("slabs, at most", m.most_slabs, "");
  line("code and tables that the first step touches", m.library_bytes, "bytes");
  line("code of a convolution kernel", m.kernel_bytes, "bytes");
  line("node of a plan", m.node_bytes, "bytes");
  line("page", m.page_bytes, "bytes");
  line("bucket of gradients, at least", m.bucket_bytes, "bytes");
  return text.str();
}

}  // namespace aloni
