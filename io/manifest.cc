#include "espalier/io/manifest.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/content_hash.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/json_object.h"

namespace espalier {

namespace {

constexpr char kFormat[] = "espalier-manifest";
constexpr int64_t kVersion = 1;
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;

// Names of the files that a manifest covers, ascending.
absl::StatusOr<std::vector<std::string>> CoveredFiles(
    const TensorCatalog& catalog) {
  std::vector<std::string> names;
  for (const TensorCatalog::File& file : catalog.files()) {
    names.push_back(file.name);
  }
  const Folder& folder = *catalog.folder();
  const absl::StatusOr<std::vector<std::string>> others =
      folder.List(/*deep=*/false);
  if (!others.ok()) return others.status();
  for (const std::string& name : *others) {
    if (name[0] == '.' || name == kManifestName ||
        absl::EndsWith(name, ".safetensors") || !folder.Open(name).ok()) {
      continue;
    }
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

const TensorCatalog::File* WeightFile(const TensorCatalog& catalog,
                                      const std::string& name) {
  const auto found = std::find_if(
      catalog.files().begin(), catalog.files().end(),
      [&](const TensorCatalog::File& file) { return file.name == name; });
  return found == catalog.files().end() ? nullptr : &*found;
}

// Reads bytes [begin, end) of a file in pieces.
absl::Status ReadPieces(
    const internal::ReadableFile& file, int64_t begin, int64_t end,
    std::vector<uint8_t>* buffer,
    const std::function<void(absl::Span<const uint8_t>)>& take) {
  buffer->resize(static_cast<size_t>(kPieceBytes));
  while (begin < end) {
    const int64_t count = std::min(end - begin, kPieceBytes);
    const absl::Span<uint8_t> piece =
        absl::MakeSpan(*buffer).subspan(0, static_cast<size_t>(count));
    if (absl::Status status = file.ReadAt(begin, piece); !status.ok()) {
      return status;
    }
    take(piece);
    begin += count;
  }
  return absl::OkStatus();
}

class Reader {
 public:
  Reader(const TensorCatalog& catalog, const ReadProgress& progress,
         int64_t total)
      : catalog_(catalog), progress_(progress), total_(total) {}

  // Hash of bytes [begin, end).
  absl::StatusOr<std::string> Hash(const internal::ReadableFile& file,
                                   int64_t begin, int64_t end) {
    ContentHasher hasher;
    absl::Status status = ReadPieces(
        file, begin, end, &buffer_, [&](absl::Span<const uint8_t> piece) {
          hasher.Update(piece);
          done_ += static_cast<int64_t>(piece.size());
          if (progress_) progress_(done_, total_);
        });
    if (!status.ok()) return status;
    return hasher.HexDigest();
  }
  // Hash of the length field and the JSON of a weight file; "" for others.
  absl::StatusOr<std::string> HeaderHash(const internal::ReadableFile& file,
                                         const std::string& name) {
    const TensorCatalog::File* weights = WeightFile(catalog_, name);
    if (weights == nullptr) return std::string();
    return Hash(file, 0, std::min(weights->data_start, file.size()));
  }

 private:
  const TensorCatalog& catalog_;
  const ReadProgress& progress_;
  const int64_t total_;
  int64_t done_ = 0;
  std::vector<uint8_t> buffer_;
};

absl::StatusOr<int64_t> SizeOf(const TensorCatalog& catalog,
                               const std::vector<std::string>& names) {
  int64_t total = 0;
  for (const std::string& name : names) {
    const absl::StatusOr<internal::ReadableFile> file =
        catalog.folder()->Open(name);
    if (!file.ok()) return file.status();
    total += file->size();
  }
  return total;
}

// ", tensor \"x\" begins there" for the first tensor of the bytes.
std::string TensorAt(const TensorCatalog& catalog, const std::string& name,
                     int64_t begin) {
  const TensorCatalog::File* file = WeightFile(catalog, name);
  if (file == nullptr) return "";
  if (begin < file->data_start && file->count == 0) return "";
  for (uint32_t i = file->first; i < file->first + file->count; ++i) {
    const TensorCatalog::Tensor& tensor = catalog.tensors()[i];
    if (file->data_start + tensor.begin + tensor.num_bytes > begin) {
      return absl::StrCat(", from tensor ",
                          internal::Quote(catalog.NameOf(tensor)), " on");
    }
  }
  return "";
}

absl::Status CheckFile(const Manifest::File& file, int64_t block_bytes,
                       const TensorCatalog& catalog, bool full, Reader* reader,
                       ProblemList* problems) {
  const std::string path = catalog.folder()->PathOf(file.name);
  const absl::StatusOr<internal::ReadableFile> readable =
      catalog.folder()->Open(file.name);
  if (absl::IsNotFound(readable.status())) {
    problems->Add("manifest_missing_file",
                  absl::StrCat(path, ": in the manifest, but missing"));
    return absl::OkStatus();
  }
  if (!readable.ok()) return readable.status();
  if (readable->size() != file.num_bytes) {
    problems->Add("manifest_size",
                  absl::StrCat(path, ": ", readable->size(),
                               " bytes, the manifest says ", file.num_bytes));
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> header =
      reader->HeaderHash(*readable, file.name);
  if (!header.ok()) return header.status();
  if (*header != file.header_hash) {
    problems->Add("manifest_header",
                  absl::StrCat(path, ": header hash ", *header,
                               ", the manifest says ", file.header_hash));
  }
  // Files without a header are small: settings and tokenizers.
  if (!full && !file.header_hash.empty()) return absl::OkStatus();
  for (size_t i = 0; i < file.block_hashes.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * block_bytes;
    const int64_t end = std::min(begin + block_bytes, file.num_bytes);
    const absl::StatusOr<std::string> hash =
        reader->Hash(*readable, begin, end);
    if (!hash.ok()) return hash.status();
    if (*hash == file.block_hashes[i]) continue;
    problems->Add("manifest_content",
                  absl::StrCat(path, ": bytes ", begin, " to ", end,
                               " are not those of the manifest",
                               TensorAt(catalog, file.name, begin)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> ParseManifest(JsonValue value,
                                       const std::string& path) {
  const absl::StatusOr<JsonObject> json =
      JsonObject::From(std::move(value), path);
  if (!json.ok()) return json.status();
  Manifest manifest;
  std::string format;
  int64_t version = 0;
  std::vector<JsonObject> files;
  absl::Status status = json->Get("format", &format);
  if (status.ok() && format != kFormat) {
    status = json->Error("format", absl::StrCat("is ", internal::Quote(format),
                                                ", expected ", kFormat));
  }
  if (status.ok()) status = json->Get("version", &version);
  if (status.ok() && version != kVersion) {
    status = json->Error("version",
                         absl::StrCat("is ", version, ", expected ", kVersion));
  }
  if (status.ok()) status = json->Get("block_bytes", &manifest.block_bytes);
  if (status.ok() && manifest.block_bytes < 1) {
    status = json->Error("block_bytes", "is not above 0");
  }
  if (status.ok()) status = json->Get("files", &files);
  int64_t total_bytes = 0;
  absl::flat_hash_set<std::string> names;
  for (const JsonObject& item : files) {
    Manifest::File file;
    if (status.ok()) status = item.Get("name", &file.name);
    if (status.ok() && !internal::IsBareFileName(file.name)) {
      status = item.Error("name", absl::StrCat(internal::Quote(file.name),
                                               " is no plain file name"));
    }
    if (status.ok()) status = item.Get("bytes", &file.num_bytes);
    if (status.ok()) status = item.GetOptional("header", &file.header_hash);
    if (status.ok()) status = item.Get("blocks", &file.block_hashes);
    if (!status.ok()) return status;
    const int64_t blocks = file.num_bytes / manifest.block_bytes +
                           (file.num_bytes % manifest.block_bytes != 0 ? 1 : 0);
    if (file.num_bytes < 0 ||
        blocks != static_cast<int64_t>(file.block_hashes.size())) {
      return item.Error("blocks",
                        absl::StrCat("holds ", file.block_hashes.size(),
                                     " hashes, expected ", blocks));
    }
    if (!names.insert(file.name).second) {
      return item.Error("name", absl::StrCat(file.name, " stands twice"));
    }
    if (__builtin_add_overflow(total_bytes, file.num_bytes, &total_bytes)) {
      return item.Error("bytes", "and those before it are too large a sum");
    }
    manifest.files.push_back(std::move(file));
  }
  if (!status.ok()) return status;
  return manifest;
}

}  // namespace

std::string Manifest::HeaderFingerprint() const {
  ContentHasher hasher;
  for (const File& file : files) {
    if (file.header_hash.empty()) continue;
    hasher.Update(absl::StrCat(file.name, "\n", file.num_bytes, "\n",
                               file.header_hash, "\n"));
  }
  return hasher.HexDigest();
}

absl::StatusOr<Manifest> MakeManifest(const TensorCatalog& catalog,
                                      const ReadProgress& progress) {
  const absl::StatusOr<std::vector<std::string>> names = CoveredFiles(catalog);
  if (!names.ok()) return names.status();
  const absl::StatusOr<int64_t> total = SizeOf(catalog, *names);
  if (!total.ok()) return total.status();
  Manifest manifest;
  Reader reader(catalog, progress, *total);
  for (const std::string& name : *names) {
    const absl::StatusOr<internal::ReadableFile> readable =
        catalog.folder()->Open(name);
    if (!readable.ok()) return readable.status();
    Manifest::File file;
    file.name = name;
    file.num_bytes = readable->size();
    absl::StatusOr<std::string> hash = reader.HeaderHash(*readable, name);
    if (!hash.ok()) return hash.status();
    file.header_hash = *std::move(hash);
    for (int64_t begin = 0; begin < file.num_bytes;
         begin += manifest.block_bytes) {
      hash =
          reader.Hash(*readable, begin,
                      std::min(begin + manifest.block_bytes, file.num_bytes));
      if (!hash.ok()) return hash.status();
      file.block_hashes.push_back(*std::move(hash));
    }
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

absl::Status CheckManifest(const Manifest& manifest,
                           const TensorCatalog& catalog, bool full,
                           ProblemList* problems,
                           const ReadProgress& progress) {
  int64_t total = 0;
  for (const Manifest::File& file : manifest.files) total += file.num_bytes;
  Reader reader(catalog, progress, total);
  for (const Manifest::File& file : manifest.files) {
    absl::Status status =
        CheckFile(file, manifest.block_bytes, catalog, full, &reader, problems);
    if (!status.ok()) return status;
  }
  for (const TensorCatalog::File& file : catalog.files()) {
    const bool known = std::any_of(
        manifest.files.begin(), manifest.files.end(),
        [&](const Manifest::File& m) { return m.name == file.name; });
    if (known) continue;
    problems->Add("manifest_extra_file",
                  absl::StrCat(catalog.PathOf(file),
                               ": holds weights, the manifest lacks it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> ReadManifest(const std::string& path) {
  absl::StatusOr<JsonValue> value = ReadJsonFile(path, kMaxManifestBytes);
  if (!value.ok()) return value.status();
  return ParseManifest(*std::move(value), path);
}

absl::StatusOr<Manifest> ReadManifest(const Folder& folder) {
  absl::StatusOr<JsonValue> value =
      folder.ReadJson(kManifestName, kMaxManifestBytes);
  if (!value.ok()) return value.status();
  return ParseManifest(*std::move(value), folder.PathOf(kManifestName));
}

absl::Status WriteManifest(const Manifest& manifest, const std::string& path) {
  JsonValue::Array files;
  for (const Manifest::File& file : manifest.files) {
    JsonValue item = JsonValue::Object{};
    item.Set("name", file.name);
    item.Set("bytes", file.num_bytes);
    if (!file.header_hash.empty()) item.Set("header", file.header_hash);
    item.Set("blocks", JsonValue::Array(file.block_hashes.begin(),
                                        file.block_hashes.end()));
    files.push_back(std::move(item));
  }
  const absl::StatusOr<std::string> text = WriteJson(
      JsonValue::Object{{"format", kFormat},
                        {"version", kVersion},
                        {"hash", "xxh3-64"},
                        {"block_bytes", manifest.block_bytes},
                        {"header_fingerprint", manifest.HeaderFingerprint()},
                        {"files", std::move(files)}});
  if (!text.ok()) return text.status();
  return WriteFileAtomically(path, *text);
}

}  // namespace espalier
