#include <aloni/tools/launcher.hpp>

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace aloni::tools {
namespace test_launcher {

bool started_with(const std::map<std::string, std::string>& environment) {
  return started_by_launcher([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launcher, IsKnownByItsVariable) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "MV2_COMM_WORLD_RANK",
                           "SLURM_PROCID", "FLUX_TASK_RANK", "ALPS_APP_PE", "PALS_RANKID", "JSM_NAMESPACE_RANK"}) {
    EXPECT_TRUE(started_with({{name, "0"}})) << name;
    EXPECT_TRUE(started_with({{name, ""}})) << name;
  }
}

TEST(Launcher, IsAbsentInAnOrdinaryShell) {
  EXPECT_FALSE(started_with({}));
  // Settings of users and of a Slurm allocation are no launcher.
  EXPECT_FALSE(started_with({{"HOME", "/root"},
                             {"OMP_NUM_THREADS", "4"},
                             {"OMPI_MCA_btl", "self"},
                             {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                             {"SLURM_JOB_ID", "17"},
                             {"SLURM_NTASKS", "8"}}));
}

}  // namespace test_launcher
}  // namespace aloni::tools
