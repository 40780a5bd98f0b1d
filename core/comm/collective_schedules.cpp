#include <aloni/core/comm/collective_schedules.hpp>

#include <aloni/core/comm/engine/plans.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <string>

namespace aloni::comm {

namespace {

constexpr const char* schedules_operation = "aloni::comm::collective_schedules";
constexpr std::array method_names{"direct", "recursive_doubling", "rabenseifner", "ring",  "hierarchical",
                                  "bruck",  "pairwise",           "binomial",     "chain", "dissemination"};

bool is_all_reduce(const CollectivePlan& plan) {
  return plan.operation == OperationKind::all_reduce ||
         (plan.operation == OperationKind::reduce_scatter && plan.method != CollectiveMethod::ring);
}

void check_plan(const CollectivePlan& plan) {
  if (plan.count < 0 || plan.element_bytes < 1) {
    throw InvalidArgument(schedules_operation, "plan",
                          std::to_string(plan.count) + " elements of " + std::to_string(plan.element_bytes) + " bytes",
                          "0 or more elements of at least 1 byte");
  }
  if (plan.part_elements < 0) {
    throw InvalidArgument(schedules_operation, "plan.part_elements", std::to_string(plan.part_elements),
                          "the elements of a part, or 0 for the usual size");
  }
  using K = OperationKind;
  using M = CollectiveMethod;
  const auto is_one_of = [&](std::initializer_list<M> methods) {
    return std::ranges::find(methods, plan.method) != methods.end();
  };
  const bool fits = is_all_reduce(plan)                   ? plan.method <= M::hierarchical
                    : plan.operation == K::reduce_scatter ? true
                    : plan.operation == K::all_gather     ? is_one_of({M::ring, M::bruck})
                    : plan.operation == K::all_to_all     ? is_one_of({M::pairwise, M::bruck})
                    : plan.operation == K::broadcast      ? is_one_of({M::binomial, M::chain, M::hierarchical})
                    : plan.operation == K::barrier        ? plan.method == M::dissemination
                                                          : false;
  if (fits) return;
  throw InvalidArgument(schedules_operation, "plan",
                        std::string(name(plan.operation)) + " by " + std::string(name(plan.method)),
                        "a collective and one of its methods, as collective_variants has them");
}

}  // namespace

std::string_view name(CollectiveMethod method) { return method_names[static_cast<std::size_t>(method)]; }

bool is_variant(const CollectiveVariant& variant) {
  return std::ranges::find(collective_variants, variant) != collective_variants.end();
}

AllReduceAlgorithm all_reduce_algorithm(CollectiveMethod method) {
  for (const AllReduceAlgorithm a : all_reduce_algorithms)
    if (to_string(a) == name(method)) return a;
  throw InvalidArgument("aloni::comm::all_reduce_algorithm", "method", std::string(name(method)),
                        "a method of an all-reduce");
}

CollectiveSchedules collective_schedules(const std::vector<std::vector<int>>& nodes, bool shared_memory,
                                         const CollectivePlan& plan) {
  check_plan(plan);
  const detail::Plans plans(detail::topology_of(nodes, shared_memory));
  detail::PlanKey key{.kind = plan.operation,
                      .element_bytes = static_cast<std::uint32_t>(plan.element_bytes),
                      .root = plan.root,
                      .count = plan.count,
                      .part_elements = plan.part_elements};
  if (is_all_reduce(plan)) {
    key.kind = OperationKind::all_reduce;
    key.algorithm = all_reduce_algorithm(plan.method);
    key.staged = key.algorithm == AllReduceAlgorithm::direct && !plan.shared_data;
    (void)plans.choose(schedules_operation, key.algorithm, 0, false);  // throws if the nodes do not fit
  }
  const Index part = plans.part_elements(key), parts = std::max<Index>(1, ceil_div(plan.count, part));
  CollectiveSchedules all{.parts = static_cast<std::uint32_t>(parts), .parts_at_once = detail::parts_in_flight};
  for (int r = 0; r < static_cast<int>(plans.topology().root_ranks.size()); ++r) {
    if (parts > 1) all.whole.push_back(plans.schedule(key, plan.method, part, r));
    all.last.push_back(plans.schedule(key, plan.method, plan.count - (parts - 1) * part, r));
  }
  return all;
}

}  // namespace aloni::comm
