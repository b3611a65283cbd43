#include "espalier/io/internal/map_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace espalier::internal {

void MapCache::Keep(Slot& slot, const std::shared_ptr<FileMap>& map) {
  if (slot.place != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, slot.place);
    return;
  }
  if (max_kept_ == 0) return;
  if (kept_.size() == max_kept_) {
    slots_[kept_.back()->path()].place = kept_.end();
    kept_.pop_back();
  }
  kept_.push_front(map);
  slot.place = kept_.begin();
}

absl::StatusOr<std::shared_ptr<FileMap>> MapCache::Get(
    const std::string& path, const FileIdentity& identity) {
  const MutexLock lock(mutex_);
  const auto found = slots_.try_emplace(path, Slot{{}, {}, kept_.end()}).first;
  std::shared_ptr<FileMap> map = found->second.map.lock();
  if (map == nullptr) {
    absl::StatusOr<std::shared_ptr<FileMap>> opened = FileMap::Open(path);
    if (!opened.ok()) return opened.status();
    const absl::StatusOr<FileIdentity> now = IdentityOf(path);
    if (!now.ok()) return now.status();
    if (*now != identity || (*opened)->size() != identity.size) {
      return absl::DataLossError(
          absl::StrCat(path, ": the file changed since it was opened"));
    }
    map = *std::move(opened);
    found->second.map = map;
    found->second.identity = identity;
  }
  Keep(found->second, map);
  return map;
}

MappedFiles MapCache::Mapped() const {
  const MutexLock lock(mutex_);
  std::vector<MappedFiles::File> files;
  for (const auto& [path, slot] : slots_) {
    if (slot.map.expired()) continue;
    files.push_back({path, slot.identity, slot.map});
  }
  std::sort(files.begin(), files.end(),
            [](const MappedFiles::File& a, const MappedFiles::File& b) {
              return a.path < b.path;
            });
  return MappedFiles(std::move(files));
}

}  // namespace espalier::internal
