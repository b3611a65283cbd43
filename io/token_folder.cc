#include "espalier/io/token_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/json_object.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/io/safetensors_writer.h"

namespace espalier {

namespace {

constexpr char kManifestName[] = "tokens.json";
constexpr char kFormat[] = "espalier.tokens";
constexpr int64_t kVersion = 1;
// Far above what a shard holds; sums of it stay in range.
constexpr int64_t kMaxShardSamples = int64_t{1} << 48;

template <typename T>
absl::Span<const uint8_t> BytesOf(const std::vector<T>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(values.data()),
                             values.size() * sizeof(T));
}

// One file of a folder.
struct TokenShard {
  explicit TokenShard(SafetensorsFile opened) : file(std::move(opened)) {}

  SafetensorsFile file;
  const SafetensorsEntry* ids = nullptr;
  const SafetensorsEntry* weights = nullptr;  // f32, or u8 of 0 and 1
  const SafetensorsEntry* hashes = nullptr;
  std::vector<int64_t> offsets;

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

// Elements [begin, begin + values->size()) of a vector.
template <typename T>
absl::Status ReadValues(const SafetensorsFile& file,
                        const SafetensorsEntry& entry, int64_t begin,
                        std::vector<T>* values) {
  if (values->empty()) return absl::OkStatus();
  return file.ReadBytes(
      entry, begin * static_cast<int64_t>(sizeof(T)),
      absl::MakeSpan(reinterpret_cast<uint8_t*>(values->data()),
                     values->size() * sizeof(T)));
}

class TokenFolderSource final : public SampleSource {
 public:
  TokenFolderSource(std::string dir, const TokenFolderInfo& info,
                    std::vector<TokenShard> shards)
      : dir_(std::move(dir)), info_(info), shards_(std::move(shards)) {
    for (const TokenShard& shard : shards_) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + shard.size());
    }
  }

  int64_t size() const override { return info_.num_samples; }

  absl::StatusOr<uint64_t> Hash(int64_t index) const override {
    const auto [shard, local] = Find(index);
    std::vector<uint64_t> hash(1);
    const absl::Status status =
        ReadValues(shard->file, *shard->hashes, local, &hash);
    if (!status.ok()) return status;
    return hash[0];
  }

  absl::StatusOr<EncodedSample> Get(int64_t index) const override {
    const auto hash = Hash(index);
    if (!hash.ok()) return hash.status();
    const auto [found, local] = Find(index);
    const TokenShard& shard = *found;
    const int64_t begin = shard.offsets[static_cast<size_t>(local)];
    const int64_t last = shard.offsets[static_cast<size_t>(local) + 1];
    EncodedSample sample;
    sample.ids.resize(static_cast<size_t>(last - begin));
    sample.weights.resize(sample.ids.size());
    absl::Status status =
        ReadValues(shard.file, *shard.ids, begin, &sample.ids);
    if (status.ok()) status = ReadWeights(shard, begin, &sample.weights);
    if (!status.ok()) return status;
    sample.content_hash = *hash;
    for (size_t i = 0; i < sample.ids.size(); ++i) {
      const int32_t id = sample.ids[i];
      const float weight = sample.weights[i];
      if (id >= 0 && id < info_.vocab_size && weight >= 0 &&
          std::isfinite(weight)) {
        continue;
      }
      return absl::DataLossError(absl::StrCat(
          shard.file.path(), ": token ", begin + static_cast<int64_t>(i),
          " is ", id, " with weight ", weight, ", expected an id below ",
          info_.vocab_size));
    }
    return sample;
  }

  std::string Describe() const override {
    return absl::StrCat(dir_, ": ", info_.num_samples, " samples, ",
                        info_.num_tokens, " tokens");
  }

  std::string Place(int64_t index) const override {
    return absl::StrCat(dir_, ": sample ", index);
  }

 private:
  // The shard that holds a sample, and its number there.
  std::pair<const TokenShard*, int64_t> Find(int64_t index) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const TokenShard& shard = shards_[static_cast<size_t>(end - ends_.begin())];
    return {&shard, index - (*end - shard.size())};
  }

  static absl::Status ReadWeights(const TokenShard& shard, int64_t begin,
                                  std::vector<float>* weights) {
    if (shard.weights->dtype == SafetensorsDType::kF32) {
      return ReadValues(shard.file, *shard.weights, begin, weights);
    }
    std::vector<uint8_t> bytes(weights->size());
    absl::Status status = ReadValues(shard.file, *shard.weights, begin, &bytes);
    std::copy(bytes.begin(), bytes.end(), weights->begin());
    return status;
  }

  const std::string dir_;
  const TokenFolderInfo info_;
  const std::vector<TokenShard> shards_;
  std::vector<int64_t> ends_;
};

// A vector of one of two dtypes.
absl::StatusOr<const SafetensorsEntry*> Vector(const SafetensorsFile& file,
                                               absl::string_view name,
                                               SafetensorsDType dtype,
                                               SafetensorsDType other,
                                               int64_t size) {
  const SafetensorsEntry* entry = file.Find(name);
  if (entry == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", name, " is missing"));
  }
  if ((entry->dtype != dtype && entry->dtype != other) ||
      entry->shape.size() != 1 || entry->shape[0] != size) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", name, " is ", Describe(*entry),
                     ", expected ", ToString(dtype), " [", size, "]"));
  }
  return entry;
}

absl::StatusOr<TokenShard> OpenShard(
    const std::shared_ptr<const Folder>& folder, const std::string& name,
    int64_t num_samples, int64_t num_tokens) {
  auto file = SafetensorsFile::Open(folder, name, ReadMode::kRead, nullptr);
  if (!file.ok()) return file.status();
  TokenShard shard(*std::move(file));
  using D = SafetensorsDType;
  const auto ids = Vector(shard.file, "ids", D::kI32, D::kI32, num_tokens);
  const auto weights =
      Vector(shard.file, "weights", D::kF32, D::kU8, num_tokens);
  const auto hashes =
      Vector(shard.file, "hashes", D::kU64, D::kU64, num_samples);
  const auto offsets =
      Vector(shard.file, "offsets", D::kI64, D::kI64, num_samples + 1);
  for (const auto* entry : {&ids, &weights, &hashes, &offsets}) {
    if (!entry->ok()) return entry->status();
  }
  shard.ids = *ids;
  shard.weights = *weights;
  shard.hashes = *hashes;
  shard.offsets.resize(static_cast<size_t>(num_samples) + 1);
  absl::Status read = ReadValues(shard.file, **offsets, 0, &shard.offsets);
  if (!read.ok()) return read;
  if (shard.offsets.front() != 0 || shard.offsets.back() != num_tokens ||
      !std::is_sorted(shard.offsets.begin(), shard.offsets.end())) {
    return absl::InvalidArgumentError(absl::StrCat(
        shard.file.path(), ": offsets do not ascend from 0 to ", num_tokens));
  }
  return shard;
}

}  // namespace

TokenFolderWriter::TokenFolderWriter(AtomicDirectory dir, std::string tokenizer,
                                     int32_t vocab_size, int64_t shard_tokens)
    : dir_(std::move(dir)),
      tokenizer_(std::move(tokenizer)),
      vocab_size_(vocab_size),
      shard_tokens_(shard_tokens) {}

absl::StatusOr<TokenFolderWriter> TokenFolderWriter::Create(
    const std::string& dir, std::string tokenizer, int32_t vocab_size,
    int64_t shard_tokens) {
  auto directory = AtomicDirectory::Create(dir);
  if (!directory.ok()) return directory.status();
  return TokenFolderWriter(*std::move(directory), std::move(tokenizer),
                           vocab_size, shard_tokens);
}

absl::Status TokenFolderWriter::Add(const EncodedSample& sample) {
  const std::string where = absl::StrCat("sample ", num_samples_);
  if (sample.ids.size() != sample.weights.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", sample.ids.size(), " tokens and ",
                     sample.weights.size(), " weights"));
  }
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    if (sample.ids[i] < 0 || sample.ids[i] >= vocab_size_) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": token id ", sample.ids[i], ", expected 0 .. ",
                       vocab_size_ - 1));
    }
    if (!(sample.weights[i] >= 0) || !std::isfinite(sample.weights[i])) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": weight ", sample.weights[i], ", expected >= 0"));
    }
  }
  ids_.insert(ids_.end(), sample.ids.begin(), sample.ids.end());
  weights_.insert(weights_.end(), sample.weights.begin(), sample.weights.end());
  offsets_.push_back(static_cast<int64_t>(ids_.size()));
  hashes_.push_back(sample.content_hash);
  ++num_samples_;
  num_tokens_ += static_cast<int64_t>(sample.ids.size());
  return static_cast<int64_t>(ids_.size()) >= shard_tokens_ ? CloseShard()
                                                            : absl::OkStatus();
}

absl::Status TokenFolderWriter::CloseShard() {
  if (hashes_.empty()) return absl::OkStatus();
  const auto num_tokens = static_cast<int64_t>(ids_.size());
  const auto num_samples = static_cast<int64_t>(hashes_.size());
  std::vector<uint8_t> bytes;
  if (std::all_of(weights_.begin(), weights_.end(),
                  [](float weight) { return weight == 0 || weight == 1; })) {
    bytes.assign(weights_.begin(), weights_.end());
  }
  const bool as_bytes = bytes.size() == weights_.size();
  using D = SafetensorsDType;
  const std::string name =
      absl::StrFormat("tokens-%05d.safetensors", shards_.size() + 1);
  auto writer = SafetensorsWriter::Create(
      dir_.Path(name), {{"ids", D::kI32, {num_tokens}},
                        {"weights", as_bytes ? D::kU8 : D::kF32, {num_tokens}},
                        {"hashes", D::kU64, {num_samples}},
                        {"offsets", D::kI64, {num_samples + 1}}});
  if (!writer.ok()) return writer.status();
  absl::Status status = writer->Append("ids", BytesOf(ids_));
  if (status.ok()) {
    status = writer->Append("weights",
                            as_bytes ? BytesOf(bytes) : BytesOf(weights_));
  }
  if (status.ok()) status = writer->Append("hashes", BytesOf(hashes_));
  if (status.ok()) status = writer->Append("offsets", BytesOf(offsets_));
  if (status.ok()) status = writer->Finish();
  if (!status.ok()) return status;
  shards_.push_back({name, num_samples, num_tokens});
  ids_.clear();
  weights_.clear();
  hashes_.clear();
  offsets_ = {0};
  return absl::OkStatus();
}

absl::Status TokenFolderWriter::Finish() {
  absl::Status status = CloseShard();
  if (!status.ok()) return status;
  JsonValue manifest;
  manifest.Set("format", kFormat);
  manifest.Set("version", kVersion);
  manifest.Set("tokenizer", tokenizer_);
  manifest.Set("vocab_size", int64_t{vocab_size_});
  manifest.Set("num_samples", num_samples_);
  manifest.Set("num_tokens", num_tokens_);
  JsonValue::Array shards;
  for (const Shard& shard : shards_) {
    JsonValue entry;
    entry.Set("file", shard.file);
    entry.Set("num_samples", shard.num_samples);
    entry.Set("num_tokens", shard.num_tokens);
    shards.push_back(std::move(entry));
  }
  manifest.Set("shards", JsonValue(std::move(shards)));
  const auto text = WriteJson(manifest);
  if (!text.ok()) return text.status();
  status = WriteFileAtomically(dir_.Path(kManifestName), *text);
  return status.ok() ? dir_.Commit() : status;
}

bool IsTokenFolder(const std::string& dir) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(
      internal::JoinPath(dir, kManifestName), ignored);
}

bool IsTokenFolder(const Folder& folder) {
  return folder.Exists(kManifestName);
}

absl::StatusOr<std::unique_ptr<SampleSource>> OpenTokenFolder(
    const std::string& dir, TokenFolderInfo* info) {
  return OpenTokenFolder(Folder::Local(dir), info);
}

absl::StatusOr<std::unique_ptr<SampleSource>> OpenTokenFolder(
    const std::shared_ptr<const Folder>& folder, TokenFolderInfo* info_out) {
  auto value = folder->ReadJson(kManifestName);
  if (!value.ok()) return value.status();
  const auto json =
      JsonObject::From(*std::move(value), folder->PathOf(kManifestName));
  if (!json.ok()) return json.status();
  std::string format;
  int64_t version = 0, vocab_size = 0;
  TokenFolderInfo info;
  std::vector<JsonObject> entries;
  absl::Status status = json->Get("format", &format);
  if (status.ok()) status = json->Get("version", &version);
  if (status.ok() && (format != kFormat || version != kVersion)) {
    status = json->Error(
        "format", absl::StrCat("is ", format, " ", version, ", expected ",
                               kFormat, " ", kVersion));
  }
  if (status.ok()) status = json->Get("tokenizer", &info.tokenizer);
  if (status.ok()) status = json->Get("vocab_size", &vocab_size);
  if (status.ok()) status = json->Get("num_samples", &info.num_samples);
  if (status.ok()) status = json->Get("num_tokens", &info.num_tokens);
  if (status.ok()) status = json->Get("shards", &entries);
  if (!status.ok()) return status;
  if (vocab_size < 0 || vocab_size > INT32_MAX) {
    return json->Error("vocab_size", absl::StrCat("is ", vocab_size));
  }
  info.vocab_size = static_cast<int32_t>(vocab_size);
  std::vector<TokenShard> shards;
  int64_t num_samples = 0, num_tokens = 0;
  for (const JsonObject& entry : entries) {
    std::string file;
    int64_t samples = 0, tokens = 0;
    status = entry.Get("file", &file);
    if (status.ok()) status = entry.Get("num_samples", &samples);
    if (status.ok()) status = entry.Get("num_tokens", &tokens);
    if (!status.ok()) return status;
    if (!internal::IsBareFileName(file) || samples < 1 ||
        samples > kMaxShardSamples || tokens < 0) {
      return entry.Error("file", absl::StrCat("is ", file, " of ", samples,
                                              " samples, ", tokens, " tokens"));
    }
    auto shard = OpenShard(folder, file, samples, tokens);
    if (!shard.ok()) return shard.status();
    shards.push_back(*std::move(shard));
    num_samples += samples;
    num_tokens += tokens;
  }
  if (num_samples != info.num_samples || num_tokens != info.num_tokens) {
    return json->Error(
        "shards", absl::StrCat("hold ", num_samples, " samples and ",
                               num_tokens, " tokens, expected ",
                               info.num_samples, " and ", info.num_tokens));
  }
  if (info_out != nullptr) *info_out = info;
  return std::make_unique<TokenFolderSource>(folder->path(), info,
                                             std::move(shards));
}

}  // namespace espalier
