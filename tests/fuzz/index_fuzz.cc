// Input: a model.safetensors.index.json; also read as the manifest of
// content hashes.

#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/internal/weight_map.h"
#include "espalier/io/manifest.h"
#include "espalier/io/tensor_catalog.h"
#include "espalier/tests/fuzz/fuzz_input.h"

namespace espalier {
namespace {

// Two shards that an index may name.
class ShardFolder : public fuzz::ScratchFolder {
 public:
  ShardFolder() {
    Write("a", fuzz::SafetensorsBytes(
                   R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                   R"("y":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                   "123"));
    Write("b", fuzz::SafetensorsBytes(R"({"z":{"dtype":"BF16","shape":[1],)"
                                      R"("data_offsets":[0,2]}})",
                                      "12"));
  }
  void WriteIndex(absl::string_view json) const {
    Write("model.safetensors.index.json", json);
  }
};

void OpenFolder(absl::string_view json) {
  static const ShardFolder folder;
  folder.WriteIndex(json);
  const auto reader = CheckpointReader::Open(folder.path(), ReadMode::kRead);
  ProblemList problems, notes;
  const auto catalog = TensorCatalog::Scan(folder.path(), &problems, &notes);
  fuzz::Require(!reader.ok() || catalog.ok(),
                "what a reader opens can be scanned");
}

void Check(const Manifest& manifest) {
  static const ShardFolder folder;
  static const auto catalog = [] {
    folder.WriteIndex(R"({"weight_map":{"x":"a","y":"a","z":"b"}})");
    ProblemList problems, notes;
    return TensorCatalog::Scan(folder.path(), &problems, &notes);
  }();
  fuzz::Require(catalog.ok(), "two shards can be scanned");
  ProblemList problems;
  (void)CheckManifest(manifest, *catalog, /*full=*/true, &problems, nullptr);
  (void)manifest.HeaderFingerprint();
}

}  // namespace
}  // namespace espalier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view json = espalier::fuzz::Text(data, size);
  const absl::Status map = espalier::internal::VisitWeightMap(
      json, [](const std::string& /*tensor*/, const std::string& file) {
        espalier::fuzz::Require(file.find('/') == std::string::npos,
                                "a file name is bare");
        return absl::OkStatus();
      });
  if (map.ok()) espalier::OpenFolder(json);
  const espalier::fuzz::MemoryFile file(json);
  const auto manifest = espalier::ReadManifest(file.path());
  if (manifest.ok()) espalier::Check(*manifest);
  return 0;
}
