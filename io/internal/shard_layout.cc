#include "espalier/io/internal/shard_layout.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/folder_job.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/json_object.h"

namespace espalier::internal {

namespace {

constexpr char kFormat[] = "espalier-shards";
constexpr int64_t kVersion = 2;
constexpr int64_t kMaxBytes = int64_t{256} << 20;
constexpr int64_t kMaxTotalBytes = int64_t{1} << 60;

JsonValue ToJson(const PieceGroup& group) {
  JsonValue json = JsonValue::Object{};
  const auto set = [&](const char* key, int value) {
    if (value >= 0) json.Set(key, value);
  };
  set("pp", group.pp);
  set("ep", group.ep);
  set("tp", group.tp);
  set("tp_of", group.tp_of);
  set("etp", group.etp);
  return json;
}

absl::Status ReadGroup(const JsonObject& json, PieceGroup* group) {
  JsonObject object;
  absl::Status status = json.Get("group", &object);
  const auto get = [&](const char* key, int* value) {
    if (status.ok()) status = object.GetOptional(key, value);
  };
  get("pp", &group->pp);
  get("ep", &group->ep);
  get("tp", &group->tp);
  get("tp_of", &group->tp_of);
  get("etp", &group->etp);
  return status;
}

absl::Status ReadMesh(const JsonObject& json, ShardMesh* mesh) {
  JsonObject object;
  absl::Status status = json.Get("mesh", &object);
  const auto get = [&](const char* key, int* value) {
    if (status.ok()) status = object.Get(key, value);
    if (status.ok() && (*value < 1 || *value > kMaxMeshAxis)) {
      status = object.Error(key, absl::StrCat("is ", *value));
    }
  };
  get("tp", &mesh->tp);
  get("ep", &mesh->ep);
  get("pp", &mesh->pp);
  get("etp", &mesh->etp);
  return status;
}

// Sizes of files that there can be; their sum must not overflow.
absl::Status ReadSize(const JsonObject& json, absl::string_view key,
                      int64_t* size) {
  constexpr int64_t kMaxSize = int64_t{1} << 50;
  absl::Status status = json.Get(key, size);
  if (status.ok() && (*size < 0 || *size > kMaxSize)) {
    status = json.Error(
        key, absl::StrCat("is ", *size, ", expected 0 to ", kMaxSize));
  }
  return status;
}

absl::Status CheckName(const JsonObject& json, const std::string& name,
                       bool bare) {
  if (bare ? IsBareFileName(name) : IsPathBelow(name)) return absl::OkStatus();
  return json.Error("name",
                    absl::StrCat(Quote(name), " is no name in this folder"));
}

absl::Status ReadSource(const JsonObject& json, ShardLayout::Source* source) {
  absl::Status status = json.Get("name", &source->name);
  if (status.ok()) status = CheckName(json, source->name, true);
  if (status.ok()) status = ReadSize(json, "bytes", &source->num_bytes);
  if (status.ok()) {
    status = ReadSize(json, "header_bytes", &source->header_bytes);
  }
  if (status.ok()) status = json.Get("header", &source->header_hash);
  if (status.ok() &&
      (source->header_bytes < 8 || source->num_bytes < source->header_bytes)) {
    status = json.Error("header_bytes", "does not fit the file");
  }
  return status;
}

absl::Status ReadFile(const JsonObject& json, ShardLayout::File* file) {
  absl::Status status = json.Get("name", &file->name);
  if (status.ok()) status = CheckName(json, file->name, true);
  if (status.ok()) status = ReadGroup(json, &file->group);
  if (status.ok()) status = ReadSize(json, "tensors", &file->num_tensors);
  if (status.ok()) status = ReadSize(json, "data_bytes", &file->data_bytes);
  if (status.ok()) status = json.Get("header", &file->hashes.header);
  if (status.ok()) status = json.Get("data", &file->hashes.data);
  return status;
}

absl::Status ReadCopied(const JsonObject& json, ShardLayout::Copied* copied) {
  absl::Status status = json.Get("name", &copied->name);
  if (status.ok()) status = CheckName(json, copied->name, false);
  if (status.ok()) status = ReadSize(json, "bytes", &copied->num_bytes);
  if (status.ok()) status = json.Get("hash", &copied->hash);
  return status;
}

// Whether sums of sizes, with a plan's own bytes, stay numbers.
bool HasTotalSize(const ShardLayout& layout) {
  int64_t total = 0;
  const auto add = [&](const auto& file) {
    return !__builtin_add_overflow(total, file.num_bytes, &total) &&
           total <= kMaxTotalBytes;
  };
  return std::all_of(layout.sources.begin(), layout.sources.end(), add) &&
         std::all_of(layout.copied.begin(), layout.copied.end(), add);
}

template <typename Item>
absl::Status ReadItems(const JsonObject& json, absl::string_view key,
                       absl::Status (*read)(const JsonObject&, Item*),
                       std::vector<Item>* items) {
  std::vector<JsonObject> objects;
  absl::Status status = json.Get(key, &objects);
  for (const JsonObject& object : objects) {
    if (status.ok()) status = read(object, &items->emplace_back());
  }
  return status;
}

}  // namespace

absl::StatusOr<std::string> WriteLayout(const ShardLayout& layout) {
  JsonValue::Array sources;
  for (const ShardLayout::Source& source : layout.sources) {
    sources.push_back(JsonValue::Object{{"name", source.name},
                                        {"bytes", source.num_bytes},
                                        {"header_bytes", source.header_bytes},
                                        {"header", source.header_hash}});
  }
  JsonValue::Array files;
  for (const ShardLayout::File& file : layout.files) {
    files.push_back(JsonValue::Object{{"name", file.name},
                                      {"group", ToJson(file.group)},
                                      {"tensors", file.num_tensors},
                                      {"data_bytes", file.data_bytes},
                                      {"header", file.hashes.header},
                                      {"data", file.hashes.data}});
  }
  JsonValue::Array copied;
  for (const ShardLayout::Copied& item : layout.copied) {
    copied.push_back(JsonValue::Object{
        {"name", item.name}, {"bytes", item.num_bytes}, {"hash", item.hash}});
  }
  const ShardMesh& mesh = layout.mesh;
  return WriteJson(JsonValue::Object{
      {"format", kFormat},
      {"version", kVersion},
      {"mesh", JsonValue::Object{{"tp", mesh.tp},
                                 {"ep", mesh.ep},
                                 {"pp", mesh.pp},
                                 {"etp", mesh.etp}}},
      {"max_shard_bytes", layout.max_shard_bytes},
      {"index", layout.index_hash},
      {"sources", std::move(sources)},
      {"files", std::move(files)},
      {"copied", std::move(copied)},
      {"left_out",
       JsonValue::Array(layout.left_out.begin(), layout.left_out.end())}});
}

absl::StatusOr<ShardLayout> ReadLayout(const std::string& dir) {
  return ReadLayout(*Folder::Local(dir));
}

absl::StatusOr<ShardLayout> ReadLayout(const Folder& folder) {
  const std::string path = folder.PathOf(kShardsName);
  absl::StatusOr<JsonValue> value = folder.ReadJson(kShardsName, kMaxBytes);
  if (!value.ok()) return value.status();
  const absl::StatusOr<JsonObject> json =
      JsonObject::From(*std::move(value), path);
  if (!json.ok()) return json.status();
  ShardLayout layout;
  std::string format;
  int64_t version = 0;
  absl::Status status = json->Get("format", &format);
  if (status.ok()) status = json->Get("version", &version);
  if (status.ok() && (format != kFormat || version != kVersion)) {
    status = json->Error(
        "format", absl::StrCat("is ", Quote(format), " version ", version,
                               ", expected ", kFormat, " version ", kVersion,
                               "; shard the model again"));
  }
  if (status.ok()) status = ReadMesh(*json, &layout.mesh);
  if (status.ok()) {
    status = json->Get("max_shard_bytes", &layout.max_shard_bytes);
  }
  if (status.ok()) status = json->Get("index", &layout.index_hash);
  if (status.ok()) {
    status = ReadItems(*json, "sources", ReadSource, &layout.sources);
  }
  if (status.ok()) status = ReadItems(*json, "files", ReadFile, &layout.files);
  if (status.ok()) {
    status = ReadItems(*json, "copied", ReadCopied, &layout.copied);
  }
  if (status.ok()) status = json->Get("left_out", &layout.left_out);
  if (status.ok() && !HasTotalSize(layout)) {
    status = json->Error("sources", "and copied are too large a sum");
  }
  if (!status.ok()) return status;
  return layout;
}

}  // namespace espalier::internal
