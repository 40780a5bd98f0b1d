// Your own all-reduce: up a binary tree and down again. It is built as data, proved for 1 to 64 ranks, then run.
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/schedule/builder.hpp>
#include <aloni/core/comm/schedule/verify.hpp>
#include <aloni/core/environment.hpp>

#include <cstdio>
#include <vector>

using namespace aloni::comm;

Schedule tree_all_reduce(int rank, int size, aloni::Index count) {
  Builder b(rank);
  const Region data = b.output(count);
  for (const int child : {2 * rank + 1, 2 * rank + 2}) {
    if (child >= size) continue;
    const Region theirs = b.scratch(count);
    b.receive(child, theirs);
    b.reduce(theirs, data, Operands::to_first);
  }
  if (rank > 0) {
    b.send((rank - 1) / 2, data);
    b.receive((rank - 1) / 2, data);
  }
  for (const int child : {2 * rank + 1, 2 * rank + 2}) {
    if (child < size) b.send(child, data);
  }
  return b.finish();
}

int main(int argc, char** argv) {
  const aloni::Environment environment(argc, argv);
  const Communicator comm = from_mpi(MPI_COMM_WORLD);
  for (int size = 1; size <= 64 && comm.rank() == 0; ++size) {
    std::vector<Schedule> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(tree_all_reduce(rank, size, 3));
    const Cost cost = verify(all, all_reduce_goal(size, 3));  // throws on an error and names its rank and step
    if (size == 64) std::printf("proved for up to 64 ranks; there it takes %d rounds\n", cost.rounds);
  }
  std::vector<double> values(1000, comm.rank() + 1.0);
  comm.run(UserSchedule{"tree all-reduce", tree_all_reduce(comm.rank(), comm.size(), 1000), std::span(values),
                        element_operation<double>(Reduction::sum)});
  std::printf("rank %d: sum %g\n", comm.rank(), values[999]);
}
