#include <aloni/tools/strategy_cache.hpp>

#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/tools/cache_folder.hpp>
#include <aloni/tools/result_file.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

namespace aloni::tools {

namespace {

using CacheJson = nlohmann::ordered_json;

constexpr const char* cache_operation = "aloni train --strategy";
constexpr int cache_version = 5;

CacheJson to_json(const std::vector<ChoiceKey::Condition>& conditions) {
  CacheJson json = CacheJson::object();
  for (const auto& [name, value] : conditions) json[name] = value;
  return json;
}

std::string checksum_text(const std::string& text) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%08x", comm::detail::crc32c(text.data(), text.size()));
  return digits;
}

CacheJson file_at(const std::string& path) {
  return CacheJson::parse(read_text_file(cache_operation, path, "a kept choice"));
}

/// The files of this training under any conditions, the latest first.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder, const std::string& training) {
  const std::string first_part = checksum_text(training) + "-";
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with(first_part))
      found.emplace_back(entry.last_write_time(error), entry.path());
  std::ranges::sort(found, std::greater<>());
  std::vector<std::filesystem::path> paths;
  for (auto& [time, path] : found) paths.push_back(std::move(path));
  return paths;
}

/// Why a choice for this training under other conditions does not count; empty: there is none.
std::string difference(const std::filesystem::path& folder, const ChoiceKey& key) {
  for (const std::filesystem::path& path : files_of(folder, key.training)) {
    try {
      const CacheJson file = file_at(path.string());
      if (file.at("aloni_strategy") != cache_version || file.at("training") != key.training) continue;
      for (const auto& [name, value] : key.conditions) {
        const auto there = file.at("conditions").value(name, std::string("none"));
        if (there != value) return path.string() + " is of " + name + " " + there + ", not " + value;
      }
    } catch (const nlohmann::json::exception&) {  // a damaged file says nothing
    } catch (const Error&) {
    }
  }
  return "";
}

/// parse(file) of the file with this key; it gives nothing for a file that is damaged. `reason`: as in find().
template <class F>
auto read_kept(const StrategyCache& cache, const ChoiceKey& key, std::string* reason, const F& parse)
    -> decltype(parse(CacheJson())) {
  const std::string path = cache.path_of(key);
  std::error_code no_file;
  if (!std::filesystem::exists(path, no_file)) {
    if (reason) *reason = difference(std::filesystem::path(path).parent_path(), key);
    return std::nullopt;
  }
  std::string fault;
  try {
    const CacheJson file = file_at(path);
    if (file.at("aloni_strategy") != cache_version) {
      fault = "is of another version of this file";
    } else if (file.at("training") != key.training || file.at("conditions") != to_json(key.conditions)) {
      fault = "is of another training";
    } else if (auto kept = parse(file)) {
      return kept;
    } else {
      fault = "is damaged";
    }
  } catch (const nlohmann::json::exception&) {
    fault = "is damaged";
  } catch (const Error&) {
    fault = "cannot be used";
  }
  if (reason) *reason = path + " " + fault;
  return std::nullopt;
}

/// `members`: besides the key.
void write_kept(const std::string& path, const ChoiceKey& key, const CacheJson& members) {
  const std::string folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw FileError(cache_operation, folder, "cannot be made: " + error.message(), "a folder for chosen strategies");
  CacheJson file = {
      {"aloni_strategy", cache_version}, {"training", key.training}, {"conditions", to_json(key.conditions)}};
  file.update(members);
  write_result_file(path, file.dump(2) + "\n");
}

}  // namespace

std::string StrategyCache::default_folder() { return cache_folder("strategies"); }

std::string StrategyCache::path_of(const ChoiceKey& key) const {
  return folder_ + "/" + checksum_text(key.training) + "-" + checksum_text(to_json(key.conditions).dump()) + ".json";
}

std::optional<KeptStrategy> StrategyCache::find(const ChoiceKey& key, std::string* reason) const {
  if (folder_.empty()) return std::nullopt;
  return read_kept(*this, key, reason, [](const CacheJson& file) -> std::optional<KeptStrategy> {
    const auto source = file.at("source").get<std::string>();
    const auto rank_of = file.at("rank_of").get<std::vector<int>>();
    std::vector<int> all(rank_of.size());
    std::iota(all.begin(), all.end(), 0);
    if (!std::ranges::is_permutation(rank_of, all)) return std::nullopt;
    nn::MemoryWish memory{file.at("recompute").get<std::string>(), file.at("offload").get<std::string>()};
    if (const CacheJson& limit = file.at("memory_limit"); !limit.is_null()) memory.limit = limit.get<Index>();
    return KeptStrategy{nn::Strategy::parse(file.at("strategy").get<std::string>(), source),
                        file.at("seconds").get<double>(), std::move(memory), rank_of};
  });
}

std::optional<model::StepLimits> StrategyCache::find_limits(const ChoiceKey& key, std::string* reason) const {
  if (folder_.empty()) return std::nullopt;
  return read_kept(*this, key, reason, [](const CacheJson& file) -> std::optional<model::StepLimits> {
    model::StepLimits limits{.bucket_bytes = file.at("bucket_bytes").get<Index>(),
                             .chunk_bytes = file.at("chunk_bytes").get<Index>(),
                             .seconds = file.at("seconds").get<double>(),
                             .seconds_before = file.at("seconds_before").get<double>(),
                             .reason = file.at("reason").get<std::string>()};
    if (const CacheJson& overhead = file.at("largest_overhead"); !overhead.is_null())
      limits.largest_overhead = overhead.get<double>();
    if (limits.bucket_bytes < 1 || limits.chunk_bytes < 1 || limits.largest_overhead.value_or(0) < 0)
      return std::nullopt;
    return limits;
  });
}

void StrategyCache::keep(const ChoiceKey& key, const KeptStrategy& kept) const {
  if (folder_.empty()) return;
  write_kept(path_of(key), key,
             {{"source", kept.strategy.source},
              {"seconds", kept.seconds},
              {"recompute", kept.memory.recompute},
              {"offload", kept.memory.offload},
              {"memory_limit", kept.memory.limit ? CacheJson(*kept.memory.limit) : CacheJson()},
              {"rank_of", kept.rank_of},
              {"strategy", to_string(kept.strategy)}});
}

void StrategyCache::keep_limits(const ChoiceKey& key, const model::StepLimits& limits) const {
  if (folder_.empty()) return;
  write_kept(path_of(key), key,
             {{"bucket_bytes", limits.bucket_bytes},
              {"chunk_bytes", limits.chunk_bytes},
              {"largest_overhead", limits.largest_overhead ? CacheJson(*limits.largest_overhead) : CacheJson()},
              {"seconds", limits.seconds},
              {"seconds_before", limits.seconds_before},
              {"reason", limits.reason}});
}

}  // namespace aloni::tools
