#pragma once
// The functions of UCX that we call, loaded by the first transport that needs them.
//
// Not linked: UCX takes signals over and patches munmap() when it is loaded, which nobody should meet who has not asked for UCX.
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

  /// Loads it, once per process; the handlers of signals stay what they were. Throws Unsupported with the loader's text.
  static const UcxLibrary& get();
};

}  // namespace aloni::comm::detail
