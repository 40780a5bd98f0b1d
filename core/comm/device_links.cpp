#include <aloni/core/comm/device_links.hpp>

#include <aloni/core/comm/device/device_memory.hpp>
#include <aloni/core/comm/device/device_sharing.hpp>
#include <aloni/core/comm/grouped_messages.hpp>
#include <aloni/core/comm/shared_events.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

namespace aloni::comm {

namespace {

/// What a rank offers to another one to try.
struct TrialOffer {
  ExposedMemory memory;
  ExposedEvent event;
};

std::vector<bool> ranks_of_this_node(const Communicator& comm) {
  std::vector<bool> near(static_cast<std::size_t>(comm.size()));
  for (const std::vector<int>& node : comm.ranks_by_node()) {
    if (std::ranges::find(node, comm.rank()) == node.end()) continue;
    for (const int r : node) near[static_cast<std::size_t>(r)] = true;
  }
  return near;
}

}  // namespace

std::string name(DeviceWay way) {
  switch (way) {
    case DeviceWay::copies_by_events:
      return "copied, ordered by events";
    case DeviceWay::copies_by_hosts:
      return "copied, ordered by the hosts";
    case DeviceWay::groups_from_device:
      return "grouped messages of the device library";
    case DeviceWay::messages_from_device:
      return "messages from device memory";
    case DeviceWay::messages_from_host:
      break;
  }
  return "messages through host memory";
}

std::vector<std::pair<DeviceWay, int>> DeviceLinks::pairs() const {
  std::array<int, 5> counts{};
  const int ranks = static_cast<int>(devices.size());
  for (int a = 0; a < ranks; ++a)
    for (int b = a + 1; b < ranks; ++b) ++counts[static_cast<std::size_t>(std::max(way(a, b), way(b, a)))];
  std::vector<std::pair<DeviceWay, int>> result;
  for (std::size_t w = 0; w < counts.size(); ++w)
    if (counts[w] > 0) result.emplace_back(static_cast<DeviceWay>(w), counts[w]);
  return result;
}

DeviceLinks describe_devices(const Communicator& comm) {
  constexpr std::size_t bytes = 256;  // of the trial memory
  const SharedEvents events(comm);
  const auto size = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());

  using Text = std::array<char, 96>;
  std::vector<Text> texts(size);
  const std::string own = events ? events.device_name() : "";
  std::copy_n(own.begin(), std::min(own.size(), sizeof(Text) - 1), texts[rank].begin());
  comm.run(AllGather{std::span(texts)});

  std::shared_ptr<void> memory;
  if (const auto heap = comm.device_memory())
    memory = std::shared_ptr<void>(heap->allocate(bytes), [heap](void* p) { heap->deallocate(p, bytes); });
  detail::DeviceEvent* const event = events.next();
  std::vector<TrialOffer> mine(size), theirs(size);
  for (std::size_t r = 0; r < size; ++r) {
    if (r == rank) continue;
    const auto peer = static_cast<int>(r);
    if (memory) mine[r].memory = comm.expose(memory.get(), bytes, peer);
    mine[r].event = events.expose(event, peer);
  }
  comm.run(AllToAll{std::span(mine), std::span(theirs)});

  // From each rank to this one. Both need the other's events.
  std::vector<std::uint8_t> opened(size), opened_there(size);
  for (std::size_t r = 0; r < size; ++r) opened[r] = events.open(theirs[r].event) ? 1 : 0;
  comm.run(AllToAll{std::span(opened), std::span(opened_there)});
  const bool grouped = events && comm.ranks_by_node().size() > 1 && GroupedMessages(comm);
  const std::vector<bool> near = ranks_of_this_node(comm);
  DeviceLinks links;
  std::vector<DeviceWay> to_here(size, DeviceWay::copies_by_events);  // this rank itself
  for (std::size_t r = 0; r < size; ++r) {
    if (r == rank) continue;
    const auto peer = static_cast<int>(r);
    if (comm.open(peer, theirs[r].memory, bytes)) {
      to_here[r] = opened[r] && opened_there[r] ? DeviceWay::copies_by_events : DeviceWay::copies_by_hosts;
    } else if (grouped && !near[r]) {
      to_here[r] = DeviceWay::groups_from_device;
    } else {
      to_here[r] = comm.carries_device_memory(peer) ? DeviceWay::messages_from_device : DeviceWay::messages_from_host;
    }
  }
  links.ways.resize(size * size);
  std::vector<DeviceWay> by_receiver(size * size);
  std::ranges::copy(to_here, by_receiver.begin() + static_cast<std::ptrdiff_t>(rank * size));
  comm.run(AllGather{std::span(by_receiver)});
  for (std::size_t from = 0; from < size; ++from)
    for (std::size_t to = 0; to < size; ++to) links.ways[from * size + to] = by_receiver[to * size + from];
  for (const Text& text : texts) links.devices.emplace_back(text.data());
  return links;
}

DeviceFacts own_device() { return detail::device_facts(); }

}  // namespace aloni::comm
