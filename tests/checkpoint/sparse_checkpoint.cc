#include "espalier/tests/checkpoint/sparse_checkpoint.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "espalier/io/family_table.h"
#include "espalier/io/json_object.h"

namespace espalier::test {

namespace {

struct Item {
  int64_t expert = -1;  // place among the experts
  std::string name;
  SafetensorsDType dtype = SafetensorsDType::kBF16;
  const std::vector<int64_t>* shape = nullptr;
};

int64_t BytesOf(const Item& item) {
  int64_t bits = BitsOf(item.dtype);
  for (const int64_t extent : *item.shape) bits *= extent;
  return bits / 8;
}

SafetensorsDType DTypeOf(const TensorRule& rule, const StoredPart& part) {
  if ((part.dtypes >> static_cast<int>(rule.dtype) & 1) != 0) {
    return rule.dtype;
  }
  for (const SafetensorsDType dtype :
       {SafetensorsDType::kU8, SafetensorsDType::kI32, SafetensorsDType::kF32,
        SafetensorsDType::kI64, SafetensorsDType::kF8E4M3}) {
    if ((part.dtypes >> static_cast<int>(dtype) & 1) != 0) return dtype;
  }
  return SafetensorsDType::kU8;
}

// The parts of the form that a release would hold.
std::vector<const StoredPart*> PartsOf(const FamilyTable& table,
                                       const TensorRule& rule) {
  const bool fp8 = table.facts().quantization == "fp8" &&
                   rule.name.find("indexer") == std::string::npos &&
                   rule.name.find("kv_b_proj") == std::string::npos &&
                   rule.role != TensorRole::kAttentionOther &&
                   rule.role != TensorRole::kRouter &&
                   rule.role != TensorRole::kHead;
  const bool packed = rule.role == TensorRole::kExpert || fp8;
  const int form = packed ? static_cast<int>(rule.form_names.size()) - 1 : 0;
  std::vector<const StoredPart*> parts;
  std::set<int> alternatives;
  for (const StoredPart& part : rule.parts) {
    if (part.form == form && part.required &&
        alternatives.insert(part.alternative).second) {
      parts.push_back(&part);
    }
  }
  return parts;
}

absl::Status WriteShard(const std::string& path, std::vector<Item>& items,
                        SparseCheckpoint* result) {
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) {
                     return std::pair(a.expert, a.expert < 0 ? "" : a.name) <
                            std::pair(b.expert, b.expert < 0 ? "" : b.name);
                   });
  std::string json = "{\"__metadata__\":{\"format\":\"pt\"}";
  int64_t at = 0;
  for (const Item& item : items) {
    const int64_t end = at + BytesOf(item);
    absl::StrAppend(&json, ",\"", item.name, "\":{\"dtype\":\"",
                    ToString(item.dtype), "\",\"shape\":[",
                    absl::StrJoin(*item.shape, ","), "],\"data_offsets\":[", at,
                    ",", end, "]}");
    at = end;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(json.size() >> (8 * i) & 0xff));
  }
  bytes += json;
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::error_code error;
  std::filesystem::resize_file(path, bytes.size() + static_cast<uint64_t>(at),
                               error);
  if (error) {
    return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  }
  result->num_tensors += static_cast<int64_t>(items.size());
  ++result->num_files;
  result->total_bytes += at;
  result->header_bytes += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SparseCheckpoint> WriteSparseCheckpoint(
    absl::string_view config_json, const std::string& dir) {
  const auto config = JsonObject::Parse(config_json, "config.json");
  if (!config.ok()) return config.status();
  const auto table = FamilyTable::FromConfig(*config);
  if (!table.ok()) return table.status();
  constexpr int kVisionShard = 1'000'000;
  std::map<int, std::vector<Item>> shards;
  for (const TensorRule& rule : table->rules()) {
    if (rule.optional) continue;
    for (int64_t i = 0; i < rule.num_instances(); ++i) {
      FamilyTable::Match match;
      if (!table->Find(table->NameOf(rule, rule.name, i), rule.dtype, &match)) {
        return absl::InternalError(rule.name);
      }
      int shard = rule.place == PipelinePlace::kFirst ? -1 : kVisionShard - 1;
      if (rule.role == TensorRole::kVision) shard = kVisionShard;
      if (rule.layer_hole >= 0) {
        shard = match.numbers[static_cast<size_t>(rule.layer_hole)];
      }
      for (const StoredPart* part : PartsOf(*table, rule)) {
        Item item;
        if (rule.expert_hole >= 0) {
          const int64_t expert =
              match.numbers[static_cast<size_t>(rule.expert_hole)];
          item.expert = (expert * 137 + 11) % table->facts().num_experts;
        }
        item.name = table->NameOf(rule, part->pattern, i);
        item.dtype = DTypeOf(rule, *part);
        item.shape = &part->shape;
        shards[shard].push_back(std::move(item));
      }
    }
  }
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  std::ofstream(dir + "/config.json", std::ios::binary) << config_json;
  SparseCheckpoint result;
  std::string index;
  int number = 0;
  for (auto& [key, items] : shards) {
    const std::string file = absl::StrFormat("model-%05d-of-%06d.safetensors",
                                             ++number, shards.size());
    absl::Status status =
        WriteShard(absl::StrCat(dir, "/", file), items, &result);
    if (!status.ok()) return status;
    for (const Item& item : items) {
      absl::StrAppend(&index, index.empty() ? "" : ",\n", "    \"", item.name,
                      "\": \"", file, "\"");
    }
  }
  std::ofstream(dir + "/model.safetensors.index.json", std::ios::binary)
      << "{\n  \"metadata\": {\n    \"total_size\": " << result.total_bytes
      << "\n  },\n  \"weight_map\": {\n"
      << index << "\n  }\n}\n";
  return result;
}

int64_t PeakBytes(const std::function<bool()>& work) {
  malloc_trim(0);  // what this process has freed is not the child's
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  int status = 0;
  struct rusage usage = {};
  if (wait4(child, &status, 0, &usage) != child || status != 0) return -1;
  return int64_t{usage.ru_maxrss} << 10;
}

}  // namespace espalier::test
