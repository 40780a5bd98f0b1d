#pragma once
// The UCX functions that aloni calls. The first UCX transport loads them.
//
// UCX is not linked: when it is loaded, it takes over signal handlers and patches munmap(). Programs that do not use
// UCX should not get these effects.
#include <ucp/api/ucp.h>

namespace aloni::comm::detail {

struct UcxLibrary {
  decltype(&::ucp_config_read) config_read;
  decltype(&::ucp_config_release) config_release;
  decltype(&::ucp_init_version) init_version;
  decltype(&::ucp_cleanup) cleanup;
  decltype(&::ucp_worker_create) worker_create;
  decltype(&::ucp_worker_destroy) worker_destroy;
  decltype(&::ucp_worker_get_address) worker_get_address;
  decltype(&::ucp_worker_release_address) worker_release_address;
  decltype(&::ucp_worker_progress) worker_progress;
  decltype(&::ucp_ep_create) ep_create;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx;
  decltype(&::ucp_tag_send_nbx) tag_send_nbx;
  decltype(&::ucp_tag_recv_nbx) tag_recv_nbx;
  decltype(&::ucp_tag_recv_request_test) tag_recv_request_test;
  decltype(&::ucp_request_check_status) request_check_status;
  decltype(&::ucp_request_cancel) request_cancel;
  decltype(&::ucp_request_free) request_free;
  decltype(&::ucs_status_string) status_string;

  /// Loads UCX once per process and restores the signal handlers. Throws Unsupported with the loader's error text.
  static const UcxLibrary& get();
};

}  // namespace aloni::comm::detail
