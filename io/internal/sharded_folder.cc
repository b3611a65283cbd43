#include "espalier/io/internal/sharded_folder.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/content_hash.h"
#include "espalier/io/internal/folder_job.h"
#include "espalier/io/internal/map_cache.h"
#include "espalier/io/internal/shard_hash.h"

namespace espalier::internal {

namespace {

constexpr size_t kLengthBytes = 8;

}  // namespace

std::string HeaderName(const ShardLayout::Source& source) {
  return absl::StrCat(kOriginalDir, "/", source.name, ".header");
}

std::string OriginalIndexName() {
  return absl::StrCat(kOriginalDir, "/", kIndexName);
}

ShardedFolder::ShardedFolder(std::shared_ptr<const Folder> folder,
                             ShardLayout layout)
    : folder_(std::move(folder)), layout_(std::move(layout)) {}

absl::StatusOr<ShardedFolder> ShardedFolder::Open(
    std::shared_ptr<const Folder> folder) {
  absl::StatusOr<ShardLayout> layout = ReadLayout(*folder);
  if (!layout.ok()) return layout.status();
  return ShardedFolder(std::move(folder), *std::move(layout));
}

absl::Status ShardedFolder::Wrong(const std::string& name,
                                  absl::string_view what, absl::string_view got,
                                  absl::string_view expected) const {
  return absl::DataLossError(absl::StrCat(folder_->PathOf(name), ": ", what,
                                          " ", got, ", expected ", expected,
                                          " (", kShardsName, ")"));
}

absl::StatusOr<SafetensorsFile> ShardedFolder::OpenPieces(
    const ShardLayout::File& file) const {
  absl::StatusOr<SafetensorsFile> opened = SafetensorsFile::Open(
      folder_, file.name, ReadMode::kRead, std::make_shared<MapCache>(0));
  if (!opened.ok()) return opened.status();
  const int64_t num_tensors = static_cast<int64_t>(opened->entries().size());
  const int64_t data_bytes = opened->file_bytes() - opened->data_start();
  if (num_tensors != file.num_tensors) {
    return Wrong(file.name, "tensors", absl::StrCat(num_tensors),
                 absl::StrCat(file.num_tensors));
  }
  if (data_bytes != file.data_bytes) {
    return Wrong(file.name, "data_bytes", absl::StrCat(data_bytes),
                 absl::StrCat(file.data_bytes));
  }
  const absl::StatusOr<ReadableFile> bytes = folder_->Open(file.name);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<std::string> hash =
      HashFile(*bytes, opened->data_start());
  if (!hash.ok()) return hash.status();
  if (*hash != file.hashes.header) {
    return Wrong(file.name, "header hash", *hash, file.hashes.header);
  }
  return opened;
}

absl::Status ShardedFolder::CheckContent(const ShardLayout::File& file) const {
  const absl::StatusOr<SafetensorsFile> opened = OpenPieces(file);
  if (!opened.ok()) return opened.status();
  const absl::StatusOr<ReadableFile> bytes = folder_->Open(file.name);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<ShardHashes> hashes = HashShardFile(*opened, *bytes);
  if (!hashes.ok()) return hashes.status();
  return hashes->data == file.hashes.data
             ? absl::OkStatus()
             : Wrong(file.name, "data hash", hashes->data, file.hashes.data);
}

absl::StatusOr<ShardedFolder::Header> ShardedFolder::ReadHeader(
    const ShardLayout::Source& source) const {
  const std::string name = HeaderName(source);
  absl::StatusOr<std::string> bytes = folder_->ReadWhole(
      name, kMaxSafetensorsHeaderBytes + int64_t{kLengthBytes});
  if (!bytes.ok()) return bytes.status();
  const std::string hash = HexOf(ContentHash(*bytes));
  if (hash != source.header_hash) {
    return Wrong(name, "hash", hash, source.header_hash);
  }
  if (static_cast<int64_t>(bytes->size()) != source.header_bytes) {
    return Wrong(name, "bytes", absl::StrCat(bytes->size()),
                 absl::StrCat(source.header_bytes));
  }
  absl::StatusOr<SafetensorsHeader> parsed =
      ParseSafetensorsHeader(absl::string_view(*bytes).substr(kLengthBytes),
                             source.num_bytes - source.header_bytes);
  if (!parsed.ok()) {
    return absl::DataLossError(absl::StrCat(
        folder_->PathOf(name), ": for a file of ", source.num_bytes,
        " bytes, as ", kShardsName, " has it: ", parsed.status().message()));
  }
  return Header{*std::move(bytes), *std::move(parsed)};
}

absl::Status ShardedFolder::CheckIndex() const {
  const std::string name = OriginalIndexName();
  if (layout_.index_hash.empty()) {
    return folder_->Exists(name)
               ? Wrong(name, "a file", "that is there", "none")
               : absl::OkStatus();
  }
  const absl::StatusOr<ReadableFile> file = folder_->Open(name);
  if (!file.ok()) return file.status();
  const absl::StatusOr<std::string> hash = HashFile(*file);
  if (!hash.ok()) return hash.status();
  return *hash == layout_.index_hash
             ? absl::OkStatus()
             : Wrong(name, "hash", *hash, layout_.index_hash);
}

absl::Status ShardedFolder::CheckCopied(const ShardLayout::Copied& copied,
                                        bool content) const {
  const absl::StatusOr<ReadableFile> file = folder_->Open(copied.name);
  if (!file.ok()) return file.status();
  if (file->size() != copied.num_bytes) {
    return Wrong(copied.name, "bytes", absl::StrCat(file->size()),
                 absl::StrCat(copied.num_bytes));
  }
  if (!content) return absl::OkStatus();
  const absl::StatusOr<std::string> hash = HashFile(*file);
  if (!hash.ok()) return hash.status();
  return *hash == copied.hash ? absl::OkStatus()
                              : Wrong(copied.name, "hash", *hash, copied.hash);
}

}  // namespace espalier::internal
