#include "espalier/io/internal/shard_hash.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "espalier/io/content_hash.h"
#include "espalier/io/internal/folder_job.h"

namespace espalier::internal {

namespace {

constexpr int64_t kWindowBytes = int64_t{4} << 20;

}  // namespace

std::string HashOfHashes(absl::Span<const uint64_t> hashes) {
  ContentHasher hasher;
  uint8_t bytes[8];
  for (const uint64_t hash : hashes) {
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(hash >> 8 * i);
    hasher.Update(absl::MakeConstSpan(bytes));
  }
  return hasher.HexDigest();
}

absl::StatusOr<ShardHashes> HashShardFile(const std::string& path) {
  const absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Open(path, ReadMode::kRead);
  if (!file.ok()) return file.status();
  const absl::StatusOr<ReadableFile> bytes = ReadableFile::Open(path);
  return bytes.ok() ? HashShardFile(*file, *bytes) : bytes.status();
}

absl::StatusOr<ShardHashes> HashShardFile(const SafetensorsFile& file,
                                          const ReadableFile& bytes) {
  const absl::StatusOr<std::string> header = HashFile(bytes, file.data_start());
  if (!header.ok()) return header.status();
  std::vector<uint64_t> hashes;
  hashes.reserve(file.entries().size());
  std::vector<uint8_t> buffer(static_cast<size_t>(
      std::min(kWindowBytes, file.file_bytes() - file.data_start())));
  ContentHasher hasher;
  for (const SafetensorsEntry& entry : file.entries()) {
    hasher.Reset();
    for (int64_t at = entry.begin; at < entry.end; at += kWindowBytes) {
      const absl::Span<uint8_t> window = absl::MakeSpan(buffer).subspan(
          0, static_cast<size_t>(std::min(kWindowBytes, entry.end - at)));
      absl::Status status = bytes.ReadAt(file.data_start() + at, window);
      if (!status.ok()) return status;
      hasher.Update(window);
    }
    hashes.push_back(hasher.Digest());
  }
  return ShardHashes{*header, HashOfHashes(hashes)};
}

}  // namespace espalier::internal
