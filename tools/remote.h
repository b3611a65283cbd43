#ifndef ESPALIER_TOOLS_REMOTE_H_
#define ESPALIER_TOOLS_REMOTE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/io/folder.h"
#include "espalier/io/object_cache.h"
#include "espalier/io/object_store.h"

namespace CLI {
class App;
}

namespace espalier::tools {

// Paths of a command line that may be s3:// URLs. Keys come from
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, the region
// from AWS_REGION where no flag names it, certificates from AWS_CA_BUNDLE.
class RemotePaths {
 public:
  // --s3-endpoint, --s3-region, --s3-addressing, --s3-attempts, --cache-dir,
  // --cache-bytes
  void AddFlags(CLI::App* cmd);

  // A URL replaced by a local copy; other paths stay as they are. Copies are in
  // use as long as this object lives.
  absl::StatusOr<std::string> Local(const std::string& path);
  // A URL as a folder whose bytes are fetched when they are read, into a cache
  // of 4 GB where --cache-bytes sets no bound; other paths as local folders.
  absl::StatusOr<std::shared_ptr<const Folder>> Open(const std::string& path);
  // The same of each URL among `paths`, by URL.
  absl::Status OpenAll(
      const std::vector<std::string>& paths,
      std::map<std::string, std::shared_ptr<const Folder>>* folders);

  // Tells on stderr what came from stores, and of how much of it a checksum
  // was compared.
  void ShowAccount() const;

 private:
  absl::Status Configure();
  absl::Status Connect();

  ObjectStoreConfig config_;
  std::string addressing_ = "path";
  std::string cache_dir_;
  int64_t cache_bytes_ = 0;
  std::unique_ptr<ObjectStore> store_;
  std::unique_ptr<ObjectCache> cache_;
  std::vector<std::shared_ptr<const Folder>> folders_;  // that were opened
};

}  // namespace espalier::tools

#endif  // ESPALIER_TOOLS_REMOTE_H_
