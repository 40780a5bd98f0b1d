#pragma once
// Experiment: counts the trials of a random test for docs/guarantees.md. If ALONI_GUARANTEES names a folder, the
// destructor writes a JSON file there, which scripts/guarantees.py reads. It adds the records of one name.
//
//   Experiment experiment("distributions");
//   for (int seed = 0; seed < cases; ++seed) {
//     const Experiment::Trial trial(experiment);  // failed if an expectation fails before its end
//     EXPECT_...
//   }
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace aloni::test {

/// Expectations of the running test that have failed on this rank.
inline int failed_expectations() {
  const testing::TestResult& result = *testing::UnitTest::GetInstance()->current_test_info()->result();
  int failed = 0;
  for (int i = 0; i < result.total_part_count(); ++i) failed += result.GetTestPartResult(i).failed() ? 1 : 0;
  return failed;
}

class Experiment {
 public:
  /// `name`: one of scripts/guarantees.py. `variant`: different in each run whose trials differ, for example by the
  /// number of ranks; a run with an equal variant replaces its record. `writes`: false on all ranks but one.
  explicit Experiment(std::string name, std::string variant = "1", bool writes = true)
      : name_(std::move(name)), variant_(std::move(variant)), writes_(writes) {}
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  ~Experiment() {
    const char* const folder = std::getenv("ALONI_GUARANTEES");
    if (folder == nullptr || *folder == '\0' || !writes_) return;
    std::filesystem::create_directories(folder);
    std::string file = name_;
    std::ranges::replace(file, '/', '-');
    std::ofstream out(std::filesystem::path(folder) / (file + "." + variant_ + ".json"));
    out << R"({"id": ")" << name_ << R"(", "trials": )" << trials_ << R"(, "failures": )" << failures_
        << R"(, "seconds": [)";
    for (std::size_t i = 0; i < seconds_.size(); ++i) out << (i == 0 ? "" : ", ") << seconds_[i];
    out << "]}\n";
  }

  void count(bool good) {
    ++trials_;
    failures_ += good ? 0 : 1;
  }
  void took(double seconds) { seconds_.push_back(seconds); }

  /// A trial without other ranks, as long as its block.
  class Trial {
   public:
    explicit Trial(Experiment& experiment) : experiment_(experiment), failed_before_(failed_expectations()) {}
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;
    ~Trial() { experiment_.count(failed_expectations() == failed_before_); }

   private:
    Experiment& experiment_;
    int failed_before_;
  };

 private:
  std::string name_, variant_;
  bool writes_;
  int trials_ = 0, failures_ = 0;
  std::vector<double> seconds_;
};

}  // namespace aloni::test
