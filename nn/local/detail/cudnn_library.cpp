#include <aloni/nn/local/detail/cudnn_library.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/local/detail/cudnn_refusal.hpp>

#include <dlfcn.h>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>

namespace aloni::nn::local::detail {

namespace {

/// Plans without a device need the descriptor of device properties.
constexpr std::size_t least_version = 90800;
constexpr const char* file = "libcudnn.so.9";
constexpr const char* remedy =
    "cuDNN 9.8 or newer in the folders of the dynamic linker (ldconfig, LD_LIBRARY_PATH), or another backend";

struct Loaded {
  CudnnLibrary library;
  std::optional<std::string> reason;
};

Loaded load() {
  // Plans keep pointers into the library, so it is never closed.
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return {{}, std::string(file) + " could not be loaded (" + dlerror() + "): it takes " + remedy};
  Loaded loaded;
  CudnnLibrary& l = loaded.library;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (!function && !loaded.reason)
      loaded.reason = std::string(file) + " has no function " + name + ": it takes " + remedy;
  };
  find(l.version, "cudnnGetVersion");
  find(l.error_string, "cudnnGetErrorString");
  find(l.last_error_string, "cudnnGetLastErrorString");
  find(l.create, "cudnnCreate");
  find(l.destroy, "cudnnDestroy");
  find(l.set_stream, "cudnnSetStream");
  find(l.create_descriptor, "cudnnBackendCreateDescriptor");
  find(l.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(l.set_attribute, "cudnnBackendSetAttribute");
  find(l.get_attribute, "cudnnBackendGetAttribute");
  find(l.finalize, "cudnnBackendFinalize");
  find(l.execute, "cudnnBackendExecute");
  if (!loaded.reason && l.version() < least_version)
    loaded.reason = std::string(file) + " is version " + std::to_string(l.version()) + ": it takes " + remedy;
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

std::optional<std::string> cudnn_refusal() { return loaded().reason; }

const CudnnLibrary& cudnn_library() {
  if (loaded().reason) throw Unsupported("aloni::nn::local: cuDNN", "library", *loaded().reason, remedy);
  return loaded().library;
}

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const CudnnLibrary& library = cudnn_library();
  std::array<char, 512> words{};
  library.last_error_string(words.data(), words.size());
  throw Error("aloni::nn::local: cuDNN", call,
              std::string(library.error_string(status)) + (words[0] ? std::string(": ") + words.data() : ""),
              "success; the log of cuDNN tells more (CUDNN_LOGLEVEL_DBG=2, CUDNN_LOGDEST_DBG=stderr)");
}

}  // namespace aloni::nn::local::detail
