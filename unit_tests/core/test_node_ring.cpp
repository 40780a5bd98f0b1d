// The ring of connections between nodes, with processes of this machine as nodes. Only the neighbours of a process
// report that it ended without farewell. A process that cannot be reached is not watched and not reported.
#include <aloni/core/comm/liveness/node_ring.hpp>

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace test_node_ring {

using aloni::comm::detail::NodeRing;
using Clock = std::chrono::steady_clock;

/// Shared memory for the barrier and the all-gather of the processes.
struct Table {
  static constexpr std::size_t place_bytes = 1024;

  std::atomic<int> arrived{0};
  std::byte places[16][place_bytes];
};

class Process {
 public:
  Process(Table& table, int rank, int size) : rank(rank), size_(size), table_(table) {}

  const int rank;

  void barrier() {
    const int all = (turn_++ + 1) * size_;
    ++table_.arrived;
    while (table_.arrived < all) std::this_thread::yield();
  }
  std::vector<std::byte> all_gather(std::span<const std::byte> mine) {
    std::memcpy(table_.places[rank], mine.data(), mine.size());
    barrier();
    std::vector<std::byte> all;
    for (int i = 0; i < size_; ++i) all.insert(all.end(), table_.places[i], table_.places[i] + mine.size());
    barrier();
    return all;
  }
  aloni::comm::detail::GatherBytes gather() {
    return [this](std::span<const std::byte> mine) { return all_gather(mine); };
  }

 private:
  int size_, turn_ = 0;
  Table& table_;
};

/// Runs `f` in `count` processes. It returns an error text, or "" on success.
void in_processes(int count, const std::function<std::string(Process&)>& f) {
  void* const memory = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Table* const table = new (memory) Table;
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Process me(*table, rank, count);
      const std::string wrong = f(me);
      if (!wrong.empty()) std::fprintf(stderr, "rank %d: %s\n", rank, wrong.c_str());
      _exit(wrong.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (int rank = 0; rank < count; ++rank) {
    int status = 0;
    waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " of " << count;
  }
  munmap(memory, sizeof(Table));
}

std::vector<int> all_of(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

int who_died(NodeRing& ring, std::chrono::milliseconds limit) {
  for (const auto end = Clock::now() + limit; Clock::now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    if (const auto verdict = ring.dead()) return verdict->rank;
  }
  return -1;
}

TEST(NodeRing, FarewellIsNoFailure) {
  for (const int count : {2, 3, 5}) {
    in_processes(count, [&](Process& me) -> std::string {
      NodeRing ring(me.rank, all_of(count), true, me.gather());
      if (ring.num_watched() != 2) return "watches " + std::to_string(ring.num_watched());
      me.barrier();
      if (me.rank == 0) return "";
      if (const int dead = who_died(ring, std::chrono::milliseconds(100)); dead >= 0)
        return "takes " + std::to_string(dead) + " for dead";
      return "";
    });
  }
}

TEST(NodeRing, OnlyNeighboursReportTheRankThatEnded) {
  constexpr int victim = 1;
  for (const int count : {2, 3, 5}) {
    in_processes(count, [&](Process& me) -> std::string {
      NodeRing ring(me.rank, all_of(count), true, me.gather());
      if (ring.num_watched() != 2) return "watches " + std::to_string(ring.num_watched());
      me.barrier();
      if (me.rank == victim) _exit(0);
      const bool is_neighbour = me.rank == 0 || me.rank == 2;
      const int dead = who_died(ring, is_neighbour ? std::chrono::milliseconds(20000) : std::chrono::milliseconds(200));
      if (dead != (is_neighbour ? victim : -1)) return "names " + std::to_string(dead);
      return "";
    });
  }
}

TEST(NodeRing, AChildDoesNotKeepTheConnectionsOfItsRank) {
  constexpr int victim = 1;
  in_processes(3, [&](Process& me) -> std::string {
    NodeRing ring(me.rank, all_of(3), true, me.gather());
    if (me.rank == victim) {
      const pid_t child = fork();
      if (child == 0) {
        sleep(3);  // longer than its rank
        _exit(0);
      }
      me.barrier();
      _exit(child > 0 ? 0 : 1);
    }
    me.barrier();
    const int dead = who_died(ring, std::chrono::milliseconds(2000));
    return dead == victim ? "" : "names " + std::to_string(dead);
  });
}

TEST(NodeRing, OnlyTheLeadersTakePart) {
  in_processes(5, [&](Process& me) -> std::string {
    const NodeRing ring(me.rank, {0, 2, 4}, true, me.gather());
    const int expected = me.rank % 2 == 0 ? 2 : 0;
    return ring.num_watched() == expected ? "" : "watches " + std::to_string(ring.num_watched());
  });
}

TEST(NodeRing, ARankThatCannotBeReachedIsNotWatched) {
  constexpr int stranger = 1;
  in_processes(3, [&](Process& me) -> std::string {
    int turn = 0;
    const auto start = Clock::now();
    NodeRing ring(me.rank, all_of(3), true, [&](std::span<const std::byte> mine) {
      std::vector<std::byte> said(mine.begin(), mine.end());
      if (me.rank == stranger && turn++ == 0) said[0] ^= std::byte{1};  // the first byte of its token
      return me.all_gather(said);
    });
    if (Clock::now() - start > std::chrono::seconds(15)) return "took too long";
    const int expected = me.rank == stranger ? 0 : 1;
    if (ring.num_watched() != expected) return "watches " + std::to_string(ring.num_watched());
    me.barrier();
    if (const int dead = who_died(ring, std::chrono::milliseconds(100)); dead >= 0)
      return "takes " + std::to_string(dead) + " for dead";
    me.barrier();
    return "";
  });
}

/// The addresses on which this process listens, as text.
std::vector<std::string> listening_addresses() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename().string());
    int listens = 0;
    socklen_t length = sizeof listens;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || !listens) continue;
    sockaddr_storage address{};
    length = sizeof address;
    getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
    const void* const bytes =
        address.ss_family == AF_INET6
            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr)
            : &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr;
    char text[INET6_ADDRSTRLEN] = {};
    inet_ntop(address.ss_family, bytes, text, sizeof text);
    found.emplace_back(text);
  }
  return found;
}

TEST(NodeRing, ListensOnlyOnAddressesThatItsNeighboursUse) {
  for (const bool one_machine : {true, false}) {
    in_processes(3, [&](Process& me) -> std::string {
      std::string wrong;
      bool any = false;
      const NodeRing ring(me.rank, all_of(3), one_machine, [&](std::span<const std::byte> mine) {
        for (const std::string& address : listening_addresses()) {
          any = true;
          const bool is_loopback = address == "127.0.0.1" || address == "::1";
          if (address == "0.0.0.0" || address == "::" || is_loopback != one_machine) wrong += " " + address;
        }
        return me.all_gather(mine);
      });
      if (!wrong.empty()) return "listens on" + wrong;
      if (one_machine && !any) return "does not listen";
      if (one_machine && ring.num_watched() != 2) return "watches " + std::to_string(ring.num_watched());
      if (!listening_addresses().empty()) return "still listens";
      return "";
    });
  }
}

}  // namespace test_node_ring
