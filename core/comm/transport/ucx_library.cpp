#include <aloni/core/comm/transport/ucx_library.hpp>

#include <aloni/core/error.hpp>

#include <dlfcn.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace aloni::comm::detail {

namespace {

/// Restores in its destructor all signal handlers that have changed since its construction.
class KeptSignals {
 public:
  KeptSignals() {
    for (int s = 1; s < NSIG; ++s) known_[at(s)] = sigaction(s, nullptr, &actions_[at(s)]) == 0;
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;
  ~KeptSignals() {
    for (int s = 1; s < NSIG; ++s) {
      struct sigaction now;
      if (!known_[at(s)] || sigaction(s, nullptr, &now) != 0) continue;
      if (now.sa_sigaction != actions_[at(s)].sa_sigaction) sigaction(s, &actions_[at(s)], nullptr);
    }
  }

 private:
  static std::size_t at(int s) { return static_cast<std::size_t>(s); }

  std::array<struct sigaction, NSIG> actions_{};
  std::array<bool, NSIG> known_{};
};

UcxLibrary load() {
  const auto refuse = [] {
    const char* const text = dlerror();
    throw Unsupported("aloni::comm::UcxTransport", "UCX", text ? text : "not loaded",
                      "libucp.so.0 in the search path of the loader, or messages over MPI");
  };
  const KeptSignals signals;
  const bool is_ours = !dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD);
  void* const ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);  // never closed, because its patches remain
  if (!ucp) refuse();
  UcxLibrary ucx{};
  const auto find = [&](auto& function, const char* name) {
    void* const symbol = dlsym(ucp, name);  // also searches libucs, on which libucp depends
    if (!symbol) refuse();
    std::memcpy(&function, &symbol, sizeof symbol);
  };
  find(ucx.config_read, "ucp_config_read");
  find(ucx.config_release, "ucp_config_release");
  find(ucx.init_version, "ucp_init_version");
  find(ucx.cleanup, "ucp_cleanup");
  find(ucx.worker_create, "ucp_worker_create");
  find(ucx.worker_destroy, "ucp_worker_destroy");
  find(ucx.worker_get_address, "ucp_worker_get_address");
  find(ucx.worker_release_address, "ucp_worker_release_address");
  find(ucx.worker_progress, "ucp_worker_progress");
  find(ucx.ep_create, "ucp_ep_create");
  find(ucx.ep_close_nbx, "ucp_ep_close_nbx");
  find(ucx.tag_send_nbx, "ucp_tag_send_nbx");
  find(ucx.tag_recv_nbx, "ucp_tag_recv_nbx");
  find(ucx.tag_recv_request_test, "ucp_tag_recv_request_test");
  find(ucx.request_check_status, "ucp_request_check_status");
  find(ucx.request_cancel, "ucp_request_cancel");
  find(ucx.request_free, "ucp_request_free");
  find(ucx.status_string, "ucs_status_string");
  // UCX errors become exceptions, so UCX itself prints nothing. Exceptions: the user sets UCX_LOG_LEVEL, or MPI loaded
  // UCX before.
  if (is_ours && !std::getenv("UCX_LOG_LEVEL")) {
    ucs_status_t (*set_option)(const char*, const char*) = nullptr;
    find(set_option, "ucs_global_opts_set_value");
    set_option("LOG_LEVEL", "fatal");
  }
  return ucx;
}

}  // namespace

const UcxLibrary& UcxLibrary::get() {
  static const UcxLibrary ucx = load();
  return ucx;
}

}  // namespace aloni::comm::detail
