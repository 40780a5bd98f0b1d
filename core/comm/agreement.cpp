#include <aloni/core/comm/agreement.hpp>

#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace aloni::comm {

namespace {

// FNV-1a. No adversary chooses these values: an accident finds two different texts of one digest once in 2^64.
class Digest {
 public:
  Digest& add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    return add(text.size());
  }
  Digest& add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<unsigned char>(number >> (8 * i)));
    return *this;
  }
  std::uint64_t value() const { return state_; }

 private:
  void add_byte(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3; }

  std::uint64_t state_ = 0xcbf29ce484222325;
};

/// One digest per value. The call comes first, as a value without a name.
std::vector<std::uint64_t> digests_of(const std::vector<ReplicatedValues::Value>& values) {
  std::vector<std::uint64_t> digests;
  for (const auto& v : values) digests.push_back(Digest().add(v.name).add(v.text).value() | 1);  // 0: no value
  return digests;
}

bool equal_on_all_ranks(const Communicator& comm, const std::vector<std::uint64_t>& digests) {
  Digest all;
  for (const std::uint64_t d : digests) all.add(d);
  std::array<std::uint64_t, 2> least{all.value(), ~all.value()};
  comm.all_reduce(std::span(least), Reduction::min);
  return least[0] == ~least[1];
}

/// Shortens texts that begin alike, so that the difference is visible.
void shorten(std::vector<std::string>& texts) {
  constexpr std::size_t longest = 100, around = 20;
  const auto too_long = [](const std::string& t) { return t.size() > longest; };
  if (std::ranges::none_of(texts, too_long)) return;
  std::size_t common = texts[0].size();
  for (const std::string& t : texts) {
    const auto differs = std::ranges::mismatch(texts[0], t).in1;
    common = std::min(common, static_cast<std::size_t>(differs - texts[0].begin()));
  }
  // The start of a text often names what it describes.
  const std::size_t first = common > 2 * around ? common - around : 0;
  for (std::string& t : texts) {
    if (t.size() < first) continue;
    const std::string head = first > 0 ? t.substr(0, around) + "…" : "";
    const bool has_tail = t.size() - first > longest;
    t = head + t.substr(first, longest) + (has_tail ? "…" : "");
  }
}

struct Group {
  std::uint64_t digest;
  std::vector<int> ranks;
};

/// Ranks with equal digests, ordered by their lowest rank.
std::vector<Group> groups_of(const std::vector<std::int64_t>& digests) {
  std::vector<Group> groups;
  for (std::size_t r = 0; r < digests.size(); ++r) {
    const auto digest = static_cast<std::uint64_t>(digests[r]);
    auto group = std::ranges::find(groups, digest, &Group::digest);
    if (group == groups.end()) group = groups.insert(groups.end(), {digest, {}});
    group->ranks.push_back(static_cast<int>(r));
  }
  return groups;
}

Disagreement describe(const Communicator& comm, const std::vector<Group>& groups, const ReplicatedValues::Value& own) {
  constexpr std::size_t shown = 3;
  std::vector<std::string> names, texts;
  for (std::size_t g = 0; g < std::min(shown, groups.size()); ++g) {
    std::string name = own.name, text = own.text;
    comm.broadcast(name, groups[g].ranks.front());
    comm.broadcast(text, groups[g].ranks.front());
    names.push_back(name);
    texts.push_back(text);
  }
  Disagreement result;
  const auto named = std::ranges::find_if(names, [](const std::string& n) { return !n.empty(); });
  if (named != names.end()) result.name = *named;
  for (std::size_t g = 0; g < texts.size(); ++g) {
    if (!names[g].empty() && names[g] != result.name) texts[g] = names[g] + " = " + texts[g];
  }
  shorten(texts);
  for (std::size_t g = 0; g < texts.size(); ++g) {
    result.found += (g > 0 ? "; " : "") + texts[g] + " on " + name_ranks(groups[g].ranks);
  }
  if (groups.size() > shown) result.found += "; other values on other ranks";
  return result;
}

}  // namespace

std::string ReplicatedValues::text_of(double value) {
  char text[32];
  for (const int digits : {6, 17}) {  // 17 digits tell all doubles apart
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

ReplicatedValues& ReplicatedValues::add(std::string name, std::span<const std::byte> bytes) {
  char checksum[16];
  std::snprintf(checksum, sizeof checksum, "%08x", static_cast<unsigned>(detail::crc32c(bytes.data(), bytes.size())));
  return add(std::move(name), std::to_string(bytes.size()) + " bytes with checksum " + checksum);
}

std::string name_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last == first + 1) --last;  // "2, 3" instead of "2 to 3"
    text += (first > 0 ? ", " : "") + std::to_string(ranks[first]);
    if (last > first) text += " to " + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

std::optional<Disagreement> find_disagreement(const Communicator& comm, const std::string& operation,
                                              const ReplicatedValues& replicated) {
  std::vector<ReplicatedValues::Value> values{{"call", operation}};
  values.insert(values.end(), replicated.values().begin(), replicated.values().end());
  const std::vector<std::uint64_t> digests = digests_of(values);
  if (equal_on_all_ranks(comm, digests)) return std::nullopt;
  const auto longest = static_cast<std::size_t>(comm.all_reduce(std::uint64_t{values.size()}, Reduction::max));
  for (std::size_t i = 0; i < longest; ++i) {
    const std::uint64_t own = i < digests.size() ? digests[i] : 0;
    const std::vector<Group> groups = groups_of(comm.all_gather(static_cast<std::int64_t>(own)));
    if (groups.size() == 1) continue;
    return describe(comm, groups, i < values.size() ? values[i] : ReplicatedValues::Value{"", "nothing"});
  }
  return std::nullopt;  // the digests of all values agree
}

void check_equal(const Communicator& comm, const std::string& operation, const ReplicatedValues& values) {
  if (const auto d = find_disagreement(comm, operation, values))
    throw InvalidArgument(operation, d->name, d->found, "equal values on all ranks");
}

}  // namespace aloni::comm
