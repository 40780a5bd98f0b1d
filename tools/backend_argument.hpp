#pragma once
// The option --backend of several subcommands: the backend of convolution.
#include <aloni/nn/local/convolution_problem.hpp>

#include <map>
#include <string>

namespace aloni::tools {

inline const std::map<std::string, nn::local::ConvolutionBackend> backends{
    {"automatic", nn::local::ConvolutionBackend::automatic},
    {"reference", nn::local::ConvolutionBackend::reference},
    {"direct", nn::local::ConvolutionBackend::direct},
    {"onednn", nn::local::ConvolutionBackend::onednn},
    {"kokkos-kernels", nn::local::ConvolutionBackend::kokkos_kernels}};

}  // namespace aloni::tools
