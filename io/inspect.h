#ifndef ESPALIER_IO_INSPECT_H_
#define ESPALIER_IO_INSPECT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/io/family_table.h"
#include "espalier/io/json.h"
#include "espalier/io/problem_list.h"

namespace espalier {

// What a checkpoint folder holds, from its headers and config.json alone.
// Parameters are counted as the model has them: a packed weight counts its
// elements, its scales count nothing.
struct InspectReport {
  struct Sum {
    std::string name;
    int64_t num_tensors = 0;  // of the files
    int64_t parameters = 0;
    int64_t bytes = 0;
  };
  struct Layer {
    int64_t index = 0;
    std::string kind;  // "kda, moe"; "prediction" behind the last layer
    int64_t num_tensors = 0;
    int64_t parameters = 0;
    int64_t bytes = 0;
  };

  std::string dir;
  bool family_known = false;
  std::string family_message;  // why it is not
  FamilyFacts facts;
  int64_t num_files = 0;
  int64_t num_tensors = 0;
  int64_t total_bytes = 0;
  int64_t parameters = 0;
  // Of the text model, for one token: all but the embedding's rows, the
  // experts that it does not meet, vision and prediction layers. -1 unknown.
  int64_t active_parameters = -1;
  int64_t other_tensors = 0;  // which the family's table does not have
  std::vector<Sum> roles;     // those that occur
  std::vector<Sum> dtypes;
  std::vector<Sum> forms;  // "dense", "mxfp4-pack-quantized"
  std::vector<Layer> layers;

  // Memory: of this machine (or its container), of the frozen base when all of
  // it stays, and when routed experts are read layer by layer.
  int64_t machine_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t streamed_bytes = 0;
  // A LoRA example: parameters for each unit of rank.
  int64_t lora_attention = 0;
  int64_t lora_experts = 0;  // every routed expert its own A and B
  ProblemList notes;
};

// Fails: NOT_FOUND without a folder or weights, DATA_LOSS on a broken one. A
// family without a table is no failure.
absl::StatusOr<InspectReport> InspectCheckpoint(const std::string& dir);
absl::StatusOr<InspectReport> InspectCheckpoint(
    std::shared_ptr<const Folder> folder);

JsonValue ToJson(const InspectReport& report);
// Lines for a person; runs of equal layers share one.
std::string ToText(const InspectReport& report);

}  // namespace espalier

#endif  // ESPALIER_IO_INSPECT_H_
