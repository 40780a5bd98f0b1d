#include <aloni/core/comm/transport/ucx_transport.hpp>

#include <aloni/core/comm/transport/ucx_library.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/give_way.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>

namespace aloni::comm::detail {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

enum Path : std::uint8_t { in_envelope, follows, farewell };

// Tags: 2 bits for the kind (payload, greeting, neither: envelope), 30 bits for the sender's rank, 32 bits for the
// number of the payload.
constexpr std::uint64_t payload_bit = std::uint64_t{1} << 63, greeting_bit = std::uint64_t{1} << 62;
constexpr std::uint64_t kind_of_tag = payload_bit | greeting_bit;
constexpr std::uint64_t whole_tag = ~std::uint64_t{0};
constexpr std::uint64_t tag_of(int rank) { return static_cast<std::uint64_t>(rank) << 32; }
constexpr int rank_of(std::uint64_t tag) { return static_cast<int>((tag & ~kind_of_tag) >> 32); }

constexpr std::size_t payload_bytes = 4096 - sizeof(Header);
constexpr std::size_t envelope_bytes = sizeof(Header) + payload_bytes;
constexpr std::size_t num_receives = 16, num_sends = 32;
constexpr std::size_t max_fragment_bytes = std::size_t{1} << 30;

constexpr auto patience_with_errors = 500ms;  // time for poison or a farewell to arrive
constexpr auto patience_with_connections = 30s;
constexpr auto patience_at_the_end = 200ms;

/// The state of one rank during set-up, for agreed().
struct Report {
  std::uint64_t address_bytes = 0;
  std::array<char, 248> error{};  // empty: none

  void set_error(const std::string& text) { text.copy(error.data(), error.size() - 1); }
};

/// Returns the reports of all ranks. Throws on all ranks if any rank reports an error. Collective.
std::vector<Report> agreed(const Report& mine, const GatherBytes& all_gather) {
  std::vector<Report> all = gather(all_gather, mine);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].error[0]) {
      throw CommunicationError("aloni::comm::UcxTransport", "UCX on rank " + std::to_string(r), all[r].error.data(),
                               "a working UCX, or messages over MPI");
    }
  }
  return all;
}

class UcxTransport final : public Transport {
 public:
  UcxTransport(int rank, std::span<const int> peers, const GatherBytes& all_gather, const Meet& meet);
  ~UcxTransport() override;

  std::string name() const override { return "ucx"; }
  std::size_t largest_fragment(int, const void*, std::size_t) const override { return max_fragment_bytes; }
  Sent send(int peer, const Header& header, const void* data, std::uint32_t ticket) override;
  bool poll(Sink& sink) override;
  bool flushed() override;
  void release(const Fragment&) override {}
  void fetch(const Fragment& fragment, void* to, std::uint32_t ticket) override;
  void abandon() noexcept override;

 private:
  struct Peer {
    UcxTransport* owner = nullptr;
    int rank = -1;
    ucp_ep_h endpoint = nullptr;
    bool left = false;
  };
  struct Payload {
    UcxTransport* owner = nullptr;
    void* request = nullptr;
    std::uint32_t ticket = 0;
    bool is_receive = false;
    std::size_t bytes = 0, received = 0;
    int peer = -1;
    ucs_status_t status = UCS_INPROGRESS;
  };
  struct Failure {
    int peer = -1;
    std::string what;
    ucs_status_t status = UCS_OK;
    Clock::time_point since;
    bool of_connection = false;
  };

  std::vector<std::byte> start(std::size_t num_peers);
  void stop() noexcept;
  std::string describe(ucs_status_t status) const { return ucx_->status_string(status); }
  void connect(Peer& peer, std::span<const std::byte> address);
  void greet(const std::vector<std::span<const std::byte>>& addresses);
  bool room_for_envelope();
  void send_envelope(Peer& peer, const Header& header, const void* data, std::size_t bytes);
  void post(std::size_t receive);
  bool poll_envelopes(Sink& sink);
  bool poll_payloads(Sink& sink);
  Payload& take_payload();
  void complete(Payload& payload, ucs_status_t status);
  void fail(int peer, std::string what, ucs_status_t status, bool of_connection = false);
  void say_farewell();
  std::byte* incoming(std::size_t i) { return buffers_.data() + i * envelope_bytes; }
  std::byte* outgoing(std::size_t i) { return buffers_.data() + (num_receives + i) * envelope_bytes; }

  static void payload_sent(void* request, ucs_status_t status, void* payload);
  static void payload_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* payload);
  static void endpoint_closed(void* request, ucs_status_t status, void* transport);
  static void connection_lost(void* peer, ucp_ep_h, ucs_status_t status);

  const UcxLibrary* ucx_ = nullptr;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int rank_;
  bool abandoned_ = false;
  std::vector<Peer> peers_;
  int closes_ = 0;
  std::vector<Failure> failures_;

  std::vector<std::byte> buffers_;
  std::array<void*, num_receives> receives_{};  // requests
  std::array<void*, num_sends> sends_{};        // requests, or null: the envelope may be overwritten
  std::size_t next_receive_ = 0, next_send_ = 0;
  std::uint32_t num_payloads_ = 0;
  std::deque<Payload> payloads_;
  std::vector<Payload*> free_, finished_;
};

UcxTransport::UcxTransport(int rank, std::span<const int> peers, const GatherBytes& all_gather, const Meet& meet)
    : rank_(rank), buffers_((num_receives + num_sends) * envelope_bytes) {
  Report report;
  std::vector<std::byte> mine;
  try {
    mine = start(peers.size());
  } catch (const Error& error) {
    report.set_error(error.what());
  }
  report.address_bytes = mine.size();
  try {
    const auto reports = agreed(report, all_gather);
    mine.resize(std::ranges::max(reports, {}, &Report::address_bytes).address_bytes);
    const auto all = all_gather(mine);
    peers_.resize(reports.size());
    std::vector<std::span<const std::byte>> addresses(reports.size());
    for (const int r : peers) {
      const auto i = static_cast<std::size_t>(r);
      peers_[i].owner = this;
      peers_[i].rank = r;
      addresses[i] = std::span(all).subspan(i * mine.size(), reports[i].address_bytes);
    }
    greet(addresses);
    meet([this] { ucx_->worker_progress(worker_); });
    if (!failures_.empty()) {
      const Failure& f = failures_.front();
      report.set_error(f.what + (f.peer < 0 ? "" : ", rank " + std::to_string(f.peer)) + ": " + describe(f.status));
    }
    agreed(report, all_gather);
    for (std::size_t i = 0; i < num_receives; ++i) post(i);
  } catch (...) {
    stop();
    throw;
  }
}

void UcxTransport::stop() noexcept {
  abandon();
  if (worker_) ucx_->worker_destroy(worker_);
  if (context_) ucx_->cleanup(context_);
}

/// Returns the address of this rank.
std::vector<std::byte> UcxTransport::start(std::size_t num_peers) {
  ucx_ = &UcxLibrary::get();
  const auto check = [&](ucs_status_t status, const char* what) {
    if (status != UCS_OK) throw CommunicationError("aloni::comm::UcxTransport", what, describe(status), "UCS_OK");
  };
  ucp_config_t* config = nullptr;
  check(ucx_->config_read(nullptr, nullptr, &config), "ucp_config_read");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG;
  params.estimated_num_eps = num_peers;
  const ucs_status_t status = ucx_->init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucx_->config_release(config);
  check(status, "ucp_init");
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SINGLE;
  check(ucx_->worker_create(context_, &worker, &worker_), "ucp_worker_create");
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  check(ucx_->worker_get_address(worker_, &address, &bytes), "ucp_worker_get_address");
  const auto* const first = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> result(first, first + bytes);
  ucx_->worker_release_address(worker_, address);
  return result;
}

UcxTransport::~UcxTransport() {
  if (!abandoned_) {
    say_farewell();
    stop();
    return;
  }
  // After a failure the worker is leaked, as with MPI: UCX 1.13 ends the process if a worker with half-closed
  // connections is destroyed.
  new std::vector<std::byte>(std::move(buffers_));  // NOLINT(bugprone-unused-raii)
}

// --- peers ---

void UcxTransport::connect(Peer& peer, std::span<const std::byte> address) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;  // the other mode may end the process if a peer fails
  params.err_handler = {connection_lost, &peer};
  const ucs_status_t status = ucx_->ep_create(worker_, &params, &peer.endpoint);
  if (status == UCS_OK) return;
  peer.endpoint = nullptr;
  fail(peer.rank, "connection", status);
}

/// Connects all peers: exchanges one message with each, or records a failure. The lower rank of a pair starts, because
/// simultaneous starts would open two TCP connections.
void UcxTransport::greet(const std::vector<std::span<const std::byte>>& addresses) {
  struct Greeting {
    Peer* peer;
    void *sent = nullptr, *received = nullptr;
  };
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  std::byte nothing{};
  const auto done = [&](void* request) {
    if (!request) return false;
    const ucs_status_t status = UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : ucx_->request_check_status(request);
    if (status != UCS_OK && status != UCS_INPROGRESS) fail(-1, "greeting", status);
    return status == UCS_OK;
  };
  std::vector<Greeting> greetings;
  for (Peer& peer : peers_) {
    if (!peer.owner) continue;
    greetings.push_back({&peer});
    greetings.back().received =
        ucx_->tag_recv_nbx(worker_, &nothing, 0, greeting_bit | tag_of(peer.rank), whole_tag, &param);
  }
  const auto deadline = Clock::now() + patience_with_connections;
  for (bool complete = false; !complete && failures_.empty(); give_way()) {
    ucx_->worker_progress(worker_);
    complete = true;
    for (Greeting& g : greetings) {
      const bool here = done(g.received);
      if (!g.peer->endpoint && (here || g.peer->rank > rank_)) {
        connect(*g.peer, addresses[static_cast<std::size_t>(g.peer->rank)]);
        if (!failures_.empty()) break;
        g.sent = ucx_->tag_send_nbx(g.peer->endpoint, &nothing, 0, greeting_bit | tag_of(rank_), &param);
      }
      complete &= here && done(g.sent);
    }
    if (Clock::now() > deadline) fail(-1, "greeting", UCS_ERR_TIMED_OUT);
  }
  for (const Greeting& g : greetings) {
    for (void* const request : {g.sent, g.received}) {
      if (!request || UCS_PTR_IS_ERR(request)) continue;
      if (ucx_->request_check_status(request) == UCS_INPROGRESS) ucx_->request_cancel(worker_, request);
      ucx_->request_free(request);
    }
  }
}

void UcxTransport::connection_lost(void* peer, ucp_ep_h, ucs_status_t status) {
  auto& p = *static_cast<Peer*>(peer);
  if (!p.left) p.owner->fail(p.rank, "connection", status, true);
}

void UcxTransport::fail(int peer, std::string what, ucs_status_t status, bool of_connection) {
  if (abandoned_) return;
  failures_.push_back({peer, std::move(what), status, Clock::now(), of_connection});
}

/// Does not use ucp_ep_flush: over TCP it waits for an answer of the peer, which may itself wait for this rank
/// elsewhere. A complete request has left the queues of UCX.
bool UcxTransport::flushed() {
  if (!failures_.empty()) return false;
  const auto busy = [&](void* request) { return request && ucx_->request_check_status(request) == UCS_INPROGRESS; };
  if (std::ranges::none_of(sends_, busy)) return true;
  ucx_->worker_progress(worker_);
  return false;
}

// --- sending ---

bool UcxTransport::room_for_envelope() {
  void*& request = sends_[next_send_];
  if (!request) return true;
  const ucs_status_t status = ucx_->request_check_status(request);
  if (status == UCS_INPROGRESS) return false;
  ucx_->request_free(request);
  request = nullptr;
  if (status != UCS_OK) fail(-1, "envelope", status);
  return status == UCS_OK;
}

void UcxTransport::send_envelope(Peer& peer, const Header& header, const void* data, std::size_t bytes) {
  std::byte* const envelope = outgoing(next_send_);
  std::memcpy(envelope, &header, sizeof header);
  if (bytes > 0) std::memcpy(envelope + sizeof header, data, bytes);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t request =
      ucx_->tag_send_nbx(peer.endpoint, envelope, sizeof header + bytes, tag_of(rank_), &param);
  if (UCS_PTR_IS_ERR(request)) return fail(peer.rank, "envelope", UCS_PTR_STATUS(request));
  if (!request) return;  // UCX has copied the envelope
  sends_[next_send_] = request;
  next_send_ = (next_send_ + 1) % num_sends;
}

Transport::Sent UcxTransport::send(int to, const Header& header, const void* data, std::uint32_t ticket) {
  if (!failures_.empty() || !room_for_envelope()) return Sent::no_room;  // poll() throws the failure
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  Header h = header;
  if (header.bytes <= payload_bytes) {
    h.path = in_envelope;
    send_envelope(peer, h, data, header.bytes);
    return Sent::copied;
  }
  h.path = follows;
  const std::uint32_t number = num_payloads_++;
  send_envelope(peer, h, &number, sizeof number);
  if (!failures_.empty()) return Sent::pending;
  Payload& payload = take_payload();
  payload.ticket = ticket;
  payload.is_receive = false;
  payload.bytes = header.bytes;
  payload.peer = to;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = payload_sent;
  param.user_data = &payload;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t request =
      ucx_->tag_send_nbx(peer.endpoint, data, header.bytes, payload_bit | tag_of(rank_) | number, &param);
  if (!request) {
    free_.push_back(&payload);
    return Sent::copied;
  }
  if (UCS_PTR_IS_ERR(request)) {
    complete(payload, UCS_PTR_STATUS(request));
  } else {
    payload.request = request;
  }
  return Sent::pending;
}

// --- receiving ---

void UcxTransport::post(std::size_t i) {
  ucp_request_param_t param{};
  // UCX 1.13 does not report the length if a receive completes at once.
  param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t request = ucx_->tag_recv_nbx(worker_, incoming(i), envelope_bytes, 0, kind_of_tag, &param);
  if (UCS_PTR_IS_ERR(request)) {
    throw CommunicationError("aloni::comm::UcxTransport", "receive of envelopes", describe(UCS_PTR_STATUS(request)),
                             "UCS_OK");
  }
  receives_[i] = request;
}

void UcxTransport::fetch(const Fragment& fragment, void* to, std::uint32_t ticket) {
  Payload& payload = take_payload();
  payload.ticket = ticket;
  payload.is_receive = true;
  payload.bytes = fragment.header.bytes;
  payload.peer = fragment.peer;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.recv = payload_received;
  param.user_data = &payload;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t request = ucx_->tag_recv_nbx(worker_, to, payload.bytes, fragment.token, whole_tag, &param);
  if (UCS_PTR_IS_ERR(request)) {
    complete(payload, UCS_PTR_STATUS(request));
  } else {
    payload.request = request;
  }
}

bool UcxTransport::poll(Sink& sink) {
  bool any = ucx_->worker_progress(worker_) != 0;
  any |= poll_envelopes(sink);
  any |= poll_payloads(sink);
  if (failures_.empty() || Clock::now() < failures_.front().since + patience_with_errors) return any;
  const Failure& failure = failures_.front();
  throw CommunicationError("aloni::comm::UcxTransport",
                           failure.what + (failure.peer < 0 ? "" : ", rank " + std::to_string(failure.peer)),
                           describe(failure.status), "UCS_OK");
}

bool UcxTransport::poll_envelopes(Sink& sink) {
  for (bool any = false;; any = true) {
    void*& request = receives_[next_receive_];
    ucp_tag_recv_info_t info{};
    const ucs_status_t status = ucx_->tag_recv_request_test(request, &info);
    if (status == UCS_INPROGRESS) return any;
    if (status != UCS_OK) {
      if (failures_.empty()) fail(-1, "receive of envelopes", status);
      return any;
    }
    ucx_->request_free(std::exchange(request, nullptr));
    Fragment fragment{.peer = rank_of(info.sender_tag)};
    std::memcpy(&fragment.header, incoming(next_receive_), sizeof(Header));
    const std::byte* const payload = incoming(next_receive_) + sizeof(Header);
    if (fragment.header.path == farewell) {
      peers_[static_cast<std::size_t>(fragment.peer)].left = true;
      std::erase_if(failures_, [&](const Failure& f) { return f.of_connection && f.peer == fragment.peer; });
    } else if (fragment.header.path == in_envelope) {
      if (info.length != sizeof(Header) + fragment.header.bytes) {
        throw CommunicationError("aloni::comm::UcxTransport", "envelope from rank " + std::to_string(fragment.peer),
                                 std::to_string(info.length) + " bytes",
                                 std::to_string(sizeof(Header) + fragment.header.bytes) + " bytes");
      }
      fragment.data = payload;
      sink.arrived(fragment);
    } else {
      std::uint32_t number = 0;
      std::memcpy(&number, payload, sizeof number);
      fragment.token = payload_bit | tag_of(fragment.peer) | number;
      sink.arrived(fragment);
    }
    post(next_receive_);
    next_receive_ = (next_receive_ + 1) % num_receives;
  }
}

// --- payloads ---

UcxTransport::Payload& UcxTransport::take_payload() {
  if (free_.empty()) {
    payloads_.emplace_back().owner = this;
    free_.reserve(payloads_.size());
    finished_.reserve(payloads_.size());
    return payloads_.back();
  }
  Payload& payload = *free_.back();
  free_.pop_back();
  payload.request = nullptr;
  payload.status = UCS_INPROGRESS;
  return payload;
}

void UcxTransport::complete(Payload& payload, ucs_status_t status) {
  payload.status = status;
  finished_.push_back(&payload);
}

void UcxTransport::payload_sent(void*, ucs_status_t status, void* payload) {
  auto& p = *static_cast<Payload*>(payload);
  p.owner->complete(p, status);
}

void UcxTransport::payload_received(void*, ucs_status_t status, const ucp_tag_recv_info_t* info, void* payload) {
  auto& p = *static_cast<Payload*>(payload);
  p.received = info->length;
  p.owner->complete(p, status);
}

bool UcxTransport::poll_payloads(Sink& sink) {
  if (finished_.empty()) return false;
  for (std::size_t i = 0; i < finished_.size(); ++i) {  // the sink may append elements
    const Payload payload = *finished_[i];
    if (payload.request) ucx_->request_free(payload.request);
    finished_[i]->request = nullptr;
    free_.push_back(finished_[i]);
    const auto who = [&] {
      return std::string("payload ") + (payload.is_receive ? "from" : "to") + " rank " + std::to_string(payload.peer);
    };
    if (payload.status != UCS_OK) {
      fail(payload.peer, who(), payload.status);
    } else if (!payload.is_receive) {
      sink.sent(payload.ticket);
    } else if (payload.received != payload.bytes) {
      throw CommunicationError("aloni::comm::UcxTransport", who(), std::to_string(payload.received) + " bytes",
                               std::to_string(payload.bytes) + " bytes");
    } else {
      sink.fetched(payload.ticket);
    }
  }
  finished_.clear();
  return true;
}

// --- the end ---

/// Tells the peers that this rank ends normally. Otherwise peers that run longer would see a lost connection as a
/// failure.
void UcxTransport::say_farewell() {
  const auto deadline = Clock::now() + patience_at_the_end;
  for (Peer& peer : peers_) {
    if (!peer.endpoint || peer.left || !failures_.empty()) continue;
    while (!room_for_envelope()) {
      ucx_->worker_progress(worker_);
      if (!failures_.empty() || Clock::now() > deadline) return;
    }
    send_envelope(peer, Header{.path = farewell}, nullptr, 0);
  }
  while (!flushed() && failures_.empty() && Clock::now() < deadline) {
  }
}

void UcxTransport::endpoint_closed(void* request, ucs_status_t, void* transport) {
  auto& t = *static_cast<UcxTransport*>(transport);
  --t.closes_;
  t.ucx_->request_free(request);
}

void UcxTransport::abandon() noexcept {
  if (std::exchange(abandoned_, true) || !worker_) return;
  for (void* const request : receives_) {
    if (request) ucx_->request_cancel(worker_, request);
  }
  for (const Payload& payload : payloads_) {
    if (payload.request && payload.is_receive) ucx_->request_cancel(worker_, payload.request);
  }
  // Cancelling does not stop transfers that have started. Closing the endpoints does.
  for (Peer& peer : peers_) {
    if (!peer.endpoint) continue;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    param.cb.send = endpoint_closed;
    param.user_data = this;
    const ucs_status_ptr_t request = ucx_->ep_close_nbx(peer.endpoint, &param);
    if (request && !UCS_PTR_IS_ERR(request)) ++closes_;
    peer.endpoint = nullptr;
  }
  const auto busy = [&](void* request) { return request && ucx_->request_check_status(request) == UCS_INPROGRESS; };
  const auto deadline = Clock::now() + patience_at_the_end;
  while (closes_ > 0 || std::ranges::any_of(sends_, busy) || std::ranges::any_of(receives_, busy) ||
         std::ranges::any_of(payloads_, busy, &Payload::request)) {
    ucx_->worker_progress(worker_);
    if (Clock::now() > deadline) break;
  }
  const auto free = [&](void*& request) {
    if (request) ucx_->request_free(std::exchange(request, nullptr));
  };
  std::ranges::for_each(sends_, free);
  std::ranges::for_each(receives_, free);
  std::ranges::for_each(payloads_, free, &Payload::request);
}

}  // namespace

std::unique_ptr<Transport> make_ucx_transport(int rank, std::span<const int> peers, const GatherBytes& all_gather,
                                              const Meet& meet) {
  return std::make_unique<UcxTransport>(rank, peers, all_gather, meet);
}

}  // namespace aloni::comm::detail
