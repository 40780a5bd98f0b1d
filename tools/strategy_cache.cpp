#include <aloni/tools/strategy_cache.hpp>

#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/tools/cache_folder.hpp>
#include <aloni/tools/result_file.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>

namespace aloni::tools {

namespace {

using CacheJson = nlohmann::ordered_json;

constexpr const char* cache_operation = "aloni train --strategy";
constexpr int cache_version = 3;

}  // namespace

std::string StrategyCache::default_folder() { return cache_folder("strategies"); }

std::string StrategyCache::path_of(const std::string& key) const {
  char name[16];
  std::snprintf(name, sizeof name, "%08x.json", comm::detail::crc32c(key.data(), key.size()));
  return folder_ + "/" + name;
}

std::optional<KeptStrategy> StrategyCache::find(const std::string& key, std::string* reason) const {
  std::error_code no_file;
  if (folder_.empty() || !std::filesystem::exists(path_of(key), no_file)) return std::nullopt;
  const auto none = [&](const std::string& text) -> std::optional<KeptStrategy> {
    if (reason) *reason = path_of(key) + " " + text;
    return std::nullopt;
  };
  try {
    const CacheJson file = CacheJson::parse(read_text_file(cache_operation, path_of(key), "a kept strategy"));
    if (file.at("aloni_strategy") != cache_version) return none("is of another version");
    if (file.at("key") != key) return none("is of another training");
    const auto source = file.at("source").get<std::string>();
    const auto rank_of = file.at("rank_of").get<std::vector<int>>();
    std::vector<int> all(rank_of.size());
    std::iota(all.begin(), all.end(), 0);
    if (!std::ranges::is_permutation(rank_of, all)) return none("is damaged");
    return KeptStrategy{nn::Strategy::parse(file.at("strategy").get<std::string>(), source),
                        file.at("seconds").get<double>(), file.at("recompute").get<std::string>(), rank_of};
  } catch (const nlohmann::json::exception&) {
    return none("is damaged");
  } catch (const Error&) {
    return none("cannot be used");
  }
}

void StrategyCache::keep(const std::string& key, const KeptStrategy& kept) const {
  if (folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error)
    throw FileError(cache_operation, folder_, "cannot be made: " + error.message(), "a folder for chosen strategies");
  const CacheJson file = {{"aloni_strategy", cache_version},     {"key", key},
                          {"source", kept.strategy.source},      {"seconds", kept.seconds},
                          {"recompute", kept.recompute},         {"rank_of", kept.rank_of},
                          {"strategy", to_string(kept.strategy)}};
  write_result_file(path_of(key), file.dump(2) + "\n");
}

}  // namespace aloni::tools
