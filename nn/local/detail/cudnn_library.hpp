#pragma once
// The functions of cuDNN 9, loaded at run time: a program starts where it is not installed, and a cluster's own version
// is used. Calls no device.
#include <cudnn_graph.h>

namespace aloni::nn::local::detail {

struct CudnnLibrary {
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnGetLastErrorString) last_error_string = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
};

/// Throws Unsupported with cudnn_refusal(). Threads may call it at the same time.
const CudnnLibrary& cudnn_library();

/// Throws Error with cuDNN's own words if `status` is not success. `call`: what was tried.
void check_cudnn(cudnnStatus_t status, const char* call);

}  // namespace aloni::nn::local::detail
