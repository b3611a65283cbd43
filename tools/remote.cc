#include "espalier/tools/remote.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "CLI/CLI.hpp"

#include "espalier/io/object_folder.h"
#include "espalier/tools/whole_number.h"

namespace espalier::tools {

namespace {

std::string Environment(const char* name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here changes it
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Of a URL or a setting from the command line, as ExitCode reads it.
absl::Status OfFlags(const absl::Status& status) {
  return absl::IsInvalidArgument(status)
             ? absl::OutOfRangeError(status.message())
             : status;
}

}  // namespace

void RemotePaths::AddFlags(CLI::App* cmd) {
  config_.region.clear();
  cmd->add_option("--s3-endpoint", config_.endpoint,
                  "Store for s3://bucket/key paths, https://host[:port]; "
                  "Amazon's if left out");
  cmd->add_option("--s3-region", config_.region,
                  "Its region; AWS_REGION or us-east-1 if left out");
  cmd->add_option("--s3-addressing", addressing_,
                  "Where the bucket's name stands: path (https://host/bucket) "
                  "or virtual (https://bucket.host, as OBS wants it)")
      ->check(CLI::IsMember({"path", "virtual"}))
      ->capture_default_str();
  cmd->add_option("--s3-attempts", config_.max_attempts,
                  "Of each request, when the store does not answer")
      ->check(WholeNumber(1, 100))
      ->capture_default_str();
  cmd->add_option("--cache-dir", cache_dir_,
                  "Where local copies of s3:// paths are kept; "
                  "~/.cache/espalier if left out");
  cmd->add_option("--cache-bytes", cache_bytes_,
                  "What the copies may take, such as 200GB; 0: no bound")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->check(WholeNumber(0, std::numeric_limits<int64_t>::max()));
}

absl::Status RemotePaths::Configure() {
  config_.access_key = Environment("AWS_ACCESS_KEY_ID");
  config_.secret_key = Environment("AWS_SECRET_ACCESS_KEY");
  config_.virtual_host = addressing_ == "virtual";
  config_.ca_file = Environment("AWS_CA_BUNDLE");
  config_.session_token = Environment("AWS_SESSION_TOKEN");
  if (config_.region.empty()) config_.region = Environment("AWS_REGION");
  if (config_.region.empty()) config_.region = "us-east-1";
  if (cache_dir_.empty()) {
    const std::string home = Environment("HOME");
    if (home.empty()) {
      return absl::OutOfRangeError(
          "HOME is not set; name a folder with --cache-dir");
    }
    cache_dir_ = home + "/.cache/espalier";
  }
  return absl::OkStatus();
}

absl::Status RemotePaths::Connect() {
  if (cache_ != nullptr) return absl::OkStatus();
  if (absl::Status status = Configure(); !status.ok()) return status;
  auto store = ObjectStore::Create(config_);
  if (!store.ok()) return OfFlags(store.status());
  auto cache = ObjectCache::Create(**store, cache_dir_, cache_bytes_);
  if (!cache.ok()) return cache.status();
  store_ = *std::move(store);
  cache_ = *std::move(cache);
  cache_->SetProgress([](int64_t done, int64_t total) {
    std::fprintf(stderr, "\rcopying: %lld of %lld MB%s",
                 static_cast<long long>(done / 1'000'000),
                 static_cast<long long>(total / 1'000'000),
                 done == total ? "\n" : "");
  });
  return absl::OkStatus();
}

absl::StatusOr<std::string> RemotePaths::Local(const std::string& path) {
  if (!ObjectUrl::Is(path)) return path;
  const auto url = ObjectUrl::Parse(path);
  if (!url.ok()) return OfFlags(url.status());
  const absl::Status connected = Connect();
  if (!connected.ok()) return connected;
  return cache_->Get(*url);
}

absl::StatusOr<std::shared_ptr<const Folder>> RemotePaths::Open(
    const std::string& path) {
  if (!ObjectUrl::Is(path)) return Folder::Local(path);
  const auto url = ObjectUrl::Parse(path);
  if (!url.ok()) return OfFlags(url.status());
  if (absl::Status status = Configure(); !status.ok()) return status;
  const auto store = ObjectStore::Create(config_);
  if (!store.ok()) return OfFlags(store.status());
  ObjectFolderOptions options;
  options.cache_dir = cache_dir_;
  if (cache_bytes_ > 0) options.cache_bytes = cache_bytes_;
  auto folder = OpenObjectFolder(config_, *url, options);
  if (folder.ok()) folders_.push_back(*folder);
  return folder;
}

absl::Status RemotePaths::OpenAll(
    const std::vector<std::string>& paths,
    std::map<std::string, std::shared_ptr<const Folder>>* folders) {
  for (const std::string& path : paths) {
    if (!ObjectUrl::Is(path)) continue;
    auto folder = Open(path);
    if (!folder.ok()) return folder.status();
    (*folders)[path] = *std::move(folder);
  }
  return absl::OkStatus();
}

void RemotePaths::ShowAccount() const {
  for (const auto& folder : folders_) {
    std::fprintf(stderr, "%s\n", folder->Account().c_str());
  }
  if (cache_ != nullptr) {
    std::fprintf(stderr, "%s\n", cache_->Account().c_str());
  }
}

}  // namespace espalier::tools
