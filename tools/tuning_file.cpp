#include <aloni/core/text_file.hpp>
#include <aloni/tools/tuning_file.hpp>

namespace aloni::tools {

void use_tuning_file(const comm::Communicator& comm, const std::string& path) {
  std::string text = comm::collectively(comm, "aloni --tuning", [&] {
    return comm.rank() == 0 ? read_text_file("aloni --tuning", path, "a file written by `aloni calibrate`") : "";
  });
  comm.broadcast(text, 0);
  comm.set_tuning(comm::parse_tuning(text, path));
}

}  // namespace aloni::tools
