#include <aloni/tools/backend_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <map>

namespace aloni::tools {

namespace {

using nn::local::ConvolutionBackend;

const std::map<std::string, ConvolutionBackend> backends{{"automatic", ConvolutionBackend::automatic},
                                                         {"reference", ConvolutionBackend::reference},
                                                         {"direct", ConvolutionBackend::direct},
                                                         {"onednn", ConvolutionBackend::onednn},
                                                         {"kokkos-kernels", ConvolutionBackend::kokkos_kernels},
                                                         {"cudnn", ConvolutionBackend::cudnn}};

}  // namespace

void add_backend_option(CLI::App& command, std::string& backend) {
  add_option(command, "--backend", backend, "Backend of convolution: " + listed(backends), "NAME");
}

nn::local::ConvolutionBackend backend_of(const std::string& name) {
  const auto found = backends.find(name);
  if (found == backends.end()) refuse("--backend", name, one_of_listed(name, backends));
  return found->second;
}

}  // namespace aloni::tools
