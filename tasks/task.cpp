#include <aloni/tasks/task.hpp>

namespace aloni::tasks {

const char* name(Kernel kernel) {
  switch (kernel) {
    case Kernel::other:
      return "task";
    case Kernel::potrf:
      return "potrf";
    case Kernel::getrf:
      return "getrf";
    case Kernel::trsm:
      return "trsm";
    case Kernel::trsm_row:
      return "trsm_row";
    case Kernel::syrk:
      return "syrk";
    case Kernel::gemm:
      return "gemm";
    case Kernel::solve_lower:
      return "solve_lower";
    case Kernel::update_lower:
      return "update_lower";
    case Kernel::solve_upper:
      return "solve_upper";
    case Kernel::update_upper:
      return "update_upper";
    case Kernel::provide:
      return "provide";
  }
  return "unknown";
}

std::string to_string(const Task& task) {
  return std::string(name(task.kernel)) + " " + to_string(views::Tile{task.row, task.column}) + " " +
         std::to_string(task.step);
}

std::string to_string(const TileId& id) {
  return "tile " + to_string(id.tile()) + " of matrix " + std::to_string(id.matrix);
}

}  // namespace aloni::tasks
