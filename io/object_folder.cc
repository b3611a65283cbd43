#include "espalier/io/object_folder.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/content_hash.h"
#include "espalier/io/internal/block_cache.h"
#include "espalier/io/internal/folder_job.h"

namespace espalier {

namespace {

using internal::BlockCache;
using internal::FileIdentity;
using internal::ReadableFile;

// What files of one folder share; lives as long as one of them.
class Objects final : private internal::BlockOrigin {
 public:
  Objects(std::string bucket, std::vector<ObjectInfo> objects)
      : bucket_(std::move(bucket)), objects_(std::move(objects)) {}

  absl::Status Connect(const ObjectStoreConfig& config,
                       const ObjectFolderOptions& options) {
    for (std::unique_ptr<ObjectStore>* store : {&store_, &store_ahead_}) {
      auto connected = ObjectStore::Create(config);
      if (!connected.ok()) return connected.status();
      *store = *std::move(connected);
    }
    auto cache = BlockCache::Create({options.cache_dir, options.cache_bytes,
                                     options.block_bytes, options.ahead_bytes},
                                    *this);
    if (!cache.ok()) return cache.status();
    cache_ = *std::move(cache);
    return absl::OkStatus();
  }

  const ObjectInfo& object(uint32_t index) const { return objects_[index]; }
  absl::Status Read(uint32_t index, int64_t offset,
                    absl::Span<uint8_t> bytes) const {
    return cache_->Read(index, offset, bytes);
  }
  internal::BlockCacheCounts counts() const { return cache_->counts(); }

 private:
  std::string Identity(uint32_t file) const override {
    return store_->IdentityOf(bucket_, objects_[file]);
  }
  int64_t Bytes(uint32_t file) const override { return objects_[file].size; }
  std::string Name(uint32_t file) const override {
    return ObjectUrl{bucket_, objects_[file].key}.ToString();
  }
  absl::Status Fetch(uint32_t file, int64_t offset, absl::Span<uint8_t> bytes,
                     bool ahead) override {
    return (ahead ? store_ahead_ : store_)
        ->ReadInto(bucket_, objects_[file], offset, bytes);
  }
  absl::StatusOr<ObjectChecksum> Checksum(uint32_t file, bool ahead) override {
    return (ahead ? store_ahead_ : store_)->Checksum(bucket_, objects_[file]);
  }

  const std::string bucket_;
  const std::vector<ObjectInfo> objects_;
  std::unique_ptr<ObjectStore> store_;
  std::unique_ptr<ObjectStore> store_ahead_;
  std::unique_ptr<BlockCache> cache_;  // last: its thread uses the rest
};

class ObjectBytes final : public internal::ByteSource {
 public:
  ObjectBytes(std::shared_ptr<const Objects> objects, uint32_t index)
      : objects_(std::move(objects)), index_(index) {}
  absl::Status ReadAt(int64_t offset,
                      absl::Span<uint8_t> bytes) const override {
    return objects_->Read(index_, offset, bytes);
  }

 private:
  const std::shared_ptr<const Objects> objects_;
  const uint32_t index_;
};

class ObjectFolder final : public Folder {
 public:
  ObjectFolder(std::string path, std::shared_ptr<const Objects> objects,
               std::map<std::string, uint32_t> names)
      : path_(std::move(path)),
        objects_(std::move(objects)),
        names_(std::move(names)) {}

  const std::string& path() const override { return path_; }
  bool is_local() const override { return false; }
  std::string Account() const override {
    const internal::BlockCacheCounts counts = objects_->counts();
    return absl::StrCat(
        path_, ": ", counts.fetched_bytes, " bytes fetched, ",
        counts.reused_bytes, " found in the cache; of the objects read ",
        counts.num_compared, " agree with the store's checksum, ",
        counts.num_partly_read, " were read in part and not compared, of ",
        counts.num_without_checksum, " the store has none");
  }
  bool Exists(const std::string& name) const override {
    return names_.find(name) != names_.end();
  }
  absl::StatusOr<std::vector<std::string>> List(bool deep) const override {
    std::vector<std::string> names;
    for (const auto& [name, index] : names_) {
      if (deep || !absl::StrContains(name, '/')) names.push_back(name);
    }
    return names;
  }
  absl::StatusOr<ReadableFile> Open(const std::string& name) const override {
    const auto found = names_.find(name);
    if (found == names_.end()) {
      return absl::NotFoundError(
          absl::StrCat("cannot open ", PathOf(name), ": no such object"));
    }
    const ObjectInfo& object = objects_->object(found->second);
    FileIdentity identity;
    identity.device = ContentHash(object.key);
    identity.inode = ContentHash(object.etag);
    identity.size = object.size;
    return ReadableFile::Of(
        PathOf(name), identity,
        std::make_shared<ObjectBytes>(objects_, found->second));
  }

 private:
  const std::string path_;
  const std::shared_ptr<const Objects> objects_;
  const std::map<std::string, uint32_t> names_;
};

// The objects that a URL means, and where their names begin in their keys.
struct Listing {
  std::vector<ObjectInfo> objects;
  size_t name_begin = 0;
};

absl::StatusOr<Listing> ListObjects(ObjectStore& store, const ObjectUrl& url) {
  Listing listing;
  if (!url.key.empty() && !absl::EndsWith(url.key, "/")) {
    const auto object = store.Head(url.bucket, url.key);
    if (object.ok()) {
      listing.objects.push_back(*object);
      listing.name_begin = url.key.size() - internal::BaseName(url.key).size();
      return listing;
    }
    if (!absl::IsNotFound(object.status())) return object.status();
  }
  std::string prefix = url.key;
  if (!prefix.empty() && !absl::EndsWith(prefix, "/")) prefix += '/';
  auto objects = store.List(url.bucket, prefix);
  if (!objects.ok()) return objects.status();
  for (ObjectInfo& object : *objects) {
    // "Folders" that a console leaves.
    if (absl::EndsWith(object.key, "/")) continue;
    if (!absl::StartsWith(object.key, prefix)) {
      return absl::DataLossError(
          absl::StrCat(url.ToString(), ": the listing holds ", object.key));
    }
    listing.objects.push_back(std::move(object));
  }
  listing.name_begin = prefix.size();
  if (!listing.objects.empty()) return listing;
  return absl::NotFoundError(
      absl::StrCat(url.ToString(), ": no object and nothing below it"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Folder>> OpenObjectFolder(
    const ObjectStoreConfig& store, const ObjectUrl& url,
    const ObjectFolderOptions& options) {
  const auto lister = ObjectStore::Create(store);
  if (!lister.ok()) return lister.status();
  absl::StatusOr<Listing> listing = ListObjects(**lister, url);
  if (!listing.ok()) return listing.status();
  std::map<std::string, uint32_t> names;
  for (uint32_t i = 0; i < listing->objects.size(); ++i) {
    const std::string name =
        listing->objects[i].key.substr(listing->name_begin);
    if (!internal::IsPathBelow(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(url.ToString(), ": object key \"",
                       listing->objects[i].key, "\" is no file name"));
    }
    names.emplace(name, i);
  }
  const std::string key =
      url.key.substr(0, std::min(url.key.size(), listing->name_begin));
  std::string path = ObjectUrl{url.bucket, key}.ToString();
  while (absl::EndsWith(path, "/")) path.pop_back();
  auto objects =
      std::make_shared<Objects>(url.bucket, std::move(listing->objects));
  if (absl::Status status = objects->Connect(store, options); !status.ok()) {
    return status;
  }
  return std::make_shared<ObjectFolder>(std::move(path), std::move(objects),
                                        std::move(names));
}

}  // namespace espalier
