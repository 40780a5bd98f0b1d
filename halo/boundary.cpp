#include <aloni/halo/boundary.hpp>

namespace aloni::halo {

const char* name(Boundary b) {
  switch (b) {
    case Boundary::zero:
      return "zero";
    case Boundary::periodic:
      return "periodic";
    case Boundary::replicate:
      return "replicate";
    case Boundary::reflect:
      return "reflect";
    case Boundary::none:
      return "none";
  }
  return "?";
}

}  // namespace aloni::halo
