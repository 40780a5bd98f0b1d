#include <aloni/tasks/detail/rank_failure.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace aloni::tasks::detail {

namespace {

constexpr std::size_t most_text = 1000;

/// Precedes the four texts.
struct FailurePrefix {
  std::int32_t rank = -1;
  std::uint32_t of_factorisation = 0;
  std::uint32_t lengths[4] = {};
};

std::string truncated(std::string_view text) { return std::string(text.substr(0, most_text)); }

}  // namespace

RankFailure failure_of(int rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const FactorisationError& e) {
    return {.rank = rank,
            .of_factorisation = true,
            .operation = truncated(e.operation()),
            .argument = truncated(e.argument()),
            .value = truncated(e.value()),
            .expectation = truncated(e.expectation())};
  } catch (const std::exception& e) {
    return {.rank = rank, .value = truncated(e.what())};
  } catch (...) {
    return {.rank = rank, .value = "an exception that is not a std::exception"};
  }
}

std::vector<std::byte> to_bytes(const RankFailure& failure) {
  FailurePrefix prefix{.rank = failure.rank, .of_factorisation = failure.of_factorisation};
  const std::string_view texts[] = {failure.operation, failure.argument, failure.value, failure.expectation};
  std::vector<std::byte> bytes(sizeof prefix);
  for (std::size_t i = 0; i < 4; ++i) {
    prefix.lengths[i] = static_cast<std::uint32_t>(texts[i].size());
    const auto text = std::as_bytes(std::span(texts[i]));
    bytes.insert(bytes.end(), text.begin(), text.end());
  }
  std::memcpy(bytes.data(), &prefix, sizeof prefix);
  return bytes;
}

RankFailure failure_from(std::span<const std::byte> bytes, int source) {
  const auto wrong = [&] {
    return CommunicationError("aloni::tasks::RankFailure", "failure of rank " + std::to_string(source),
                              std::to_string(bytes.size()) + " bytes", "the bytes of a failure");
  };
  FailurePrefix prefix;
  if (bytes.size() < sizeof prefix) throw wrong();
  std::memcpy(&prefix, bytes.data(), sizeof prefix);
  RankFailure failure{.rank = prefix.rank, .of_factorisation = prefix.of_factorisation != 0};
  std::string* const texts[] = {&failure.operation, &failure.argument, &failure.value, &failure.expectation};
  std::span<const std::byte> rest = bytes.subspan(sizeof prefix);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t length = prefix.lengths[i];
    if (length > rest.size()) throw wrong();
    texts[i]->assign(reinterpret_cast<const char*>(rest.data()), length);
    rest = rest.subspan(length);
  }
  if (!rest.empty()) throw wrong();
  return failure;
}

void throw_failure(const char* operation, const RankFailure& failure, int root_rank) {
  if (!failure.of_factorisation) throw PeerFailed(operation, failure.rank, failure.value, root_rank);
  throw FactorisationError(failure.operation, failure.argument,
                           failure.value + " on rank " + std::to_string(failure.rank), failure.expectation);
}

}  // namespace aloni::tasks::detail
