#include <aloni/nn/local/kept_plans.hpp>

#include <mutex>
#include <utility>

namespace aloni::nn::local {

namespace {

std::mutex plan_folder_mutex;
std::string plan_folder;

}  // namespace

void keep_plans_in(std::string folder) {
  const std::lock_guard lock(plan_folder_mutex);
  plan_folder = std::move(folder);
}

std::string folder_of_plans() {
  const std::lock_guard lock(plan_folder_mutex);
  return plan_folder;
}

}  // namespace aloni::nn::local
