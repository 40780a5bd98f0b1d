#include <aloni/halo/pending.hpp>

#include <aloni/halo/detail/transfer_base.hpp>

#include <exception>
#include <utility>
#include <vector>

namespace aloni::halo {

namespace detail {

void keep_forever(std::shared_ptr<TransferBase> transfer) {
  static auto* const kept = new std::vector<std::shared_ptr<TransferBase>>;
  kept->push_back(std::move(transfer));
}

}  // namespace detail

Pending::Pending(std::shared_ptr<detail::TransferBase> transfer)
    : transfer_(std::move(transfer)), exceptions_(std::uncaught_exceptions()) {}

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this != &other) {
    abandon_or_finish();
    transfer_ = std::move(other.transfer_);
    exceptions_ = other.exceptions_;
  }
  return *this;
}

Pending::~Pending() { abandon_or_finish(); }

void Pending::finish() {
  if (transfer_ == nullptr) return;
  const auto transfer = std::move(transfer_);
  transfer->finish();
}

void Pending::abandon_or_finish() noexcept {
  if (transfer_ == nullptr) return;
  const auto transfer = transfer_;
  if (std::uncaught_exceptions() > exceptions_ && transfer->waits_for_messages()) {
    transfer->communicator().poison("aloni::halo::Transfer: an exception left a started transfer unfinished");
    detail::keep_forever(std::move(transfer_));
    return;
  }
  try {
    finish();
  } catch (const std::exception& e) {  // finish() has called keep_forever()
    transfer->communicator().poison(e.what());
  }
}

}  // namespace aloni::halo
