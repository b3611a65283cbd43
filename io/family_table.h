#ifndef ESPALIER_IO_FAMILY_TABLE_H_
#define ESPALIER_IO_FAMILY_TABLE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/folder.h"
#include "espalier/io/json_object.h"
#include "espalier/io/safetensors_format.h"

namespace espalier {

enum class TensorRole : uint8_t {
  kEmbedding,
  kHead,
  kNorm,
  kAttention,       // the projections that adapters go to
  kAttentionOther,  // gates, convolutions, decays, indexers, biases
  kMlp,
  kRouter,
  kExpert,  // routed
  kSharedExpert,
  kLatent,    // projections into and out of the experts' space
  kResidual,  // attention residuals, hyper-connections
  kVision,
  kPrediction,  // of multi-token prediction layers
};
absl::string_view ToString(TensorRole role);

// Where a tensor's layer, and so the tensor, lies on the pipeline axis.
enum class PipelinePlace : uint8_t {
  kFirst,
  kLast,
  kLayer,  // with its layer
  kEvery,  // needed by several stages: tied embeddings
};

// How tensor parallelism cuts a tensor of the model, in logical elements:
// each of the `blocks` of dim `dim` (all of it when empty) into equal parts
// that are multiples of `unit`, a head for example. dim -1: replicated.
struct TensorSplit {
  int dim = -1;
  int64_t unit = 1;
  std::vector<int64_t> blocks;
};

// One form in which a file may hold a tensor: dense, or the packed codes and
// scales of a quantised linear layer. A part is one tensor of the file.
struct StoredPart {
  std::string pattern;         // "model.layers.#.mlp.up_proj.weight_scale"
  std::vector<int64_t> shape;  // as in the file
  bool any_shape = false;
  bool squeeze = false;  // dims of 1 may be left out or added
  uint32_t dtypes = 0;   // bit i: SafetensorsDType i may stand here
  // Logical elements of dim i that one stored element covers; empty: the
  // part is the same for every piece of the tensor.
  std::vector<int64_t> grain;
  bool transposed = false;  // the last two logical dims change places
  uint8_t form = 0;
  bool primary = false;  // its presence says that the form is used
  bool required = true;
  // Of the required parts with the same number, one is enough.
  uint8_t alternative = 0;
};

// A family of tensors that differ in layer and expert only.
struct TensorRule {
  std::string name;            // with "#" where layer, expert, block stand
  std::vector<int64_t> shape;  // logical, [out, in] for linear layers
  SafetensorsDType dtype = SafetensorsDType::kBF16;  // of the release
  TensorRole role = TensorRole::kNorm;
  bool optional = false;
  int group = 0;  // 0, or of an optional part of the model: all or none
  // Allowed numbers, ascending, one list for each "#"; at most 2.
  std::vector<std::vector<int32_t>> holes;
  int layer_hole = -1;   // which "#" is the layer; -1: none
  int expert_hole = -1;  // which "#" is the routed expert
  int expert_dim = -1;   // the dim that counts experts, where all are in one
  bool dense_transposed = false;  // the dense form swaps the last two dims
  PipelinePlace place = PipelinePlace::kLayer;
  TensorSplit split;
  std::vector<StoredPart> parts;
  absl::InlinedVector<std::string, 1> form_names;  // "dense", "mxfp4", ...

  int64_t num_elements() const;   // of one tensor
  int64_t num_instances() const;  // product of the holes
};

// Facts about the model for tables and estimates.
struct FamilyFacts {
  std::string model_type;
  int64_t num_layers = 0;      // without prediction layers
  int64_t num_mtp_layers = 0;  // as config.json says
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t num_experts = 0;  // routed, in one layer
  int64_t top_k = 0;
  bool tied_head = false;
  std::string quantization;              // "" without one
  int64_t pipeline_block = 1;            // stages begin at multiples of it
  std::vector<std::string> layer_kinds;  // "kda, moe", one for each layer
};

// The tensors that a config.json implies: names, shapes, dtypes, and where
// each lies on the axes of a mesh. Immutable; thread-safe.
class FamilyTable {
 public:
  // Fails: UNIMPLEMENTED for a model_type without a table, naming those that
  // have one; INVALID_ARGUMENT on missing or malformed keys.
  static absl::StatusOr<FamilyTable> FromConfig(const JsonObject& config);
  // Of DIR/config.json; NOT_FOUND without one.
  static absl::StatusOr<FamilyTable> Load(const std::string& dir);
  static absl::StatusOr<FamilyTable> Load(const Folder& folder);
  static std::vector<std::string> Families();

  const FamilyFacts& facts() const { return facts_; }
  const std::vector<TensorRule>& rules() const { return rules_; }

  struct Match {
    uint32_t rule = 0;
    uint32_t part = 0;
    uint32_t instance = 0;  // row-major over the rule's holes
    std::array<int32_t, 2> numbers = {-1, -1};
  };
  // The rule and part that a name of a file belongs to; where several parts
  // share it (dense and FP8), the one that allows `dtype`, else the first.
  bool Find(absl::string_view name, SafetensorsDType dtype, Match* match) const;
  // Whether a name that no rule has is of a part of the model that the table
  // leaves out (a vision tower, buffers).
  bool IsBesideTable(absl::string_view name) const;

  // The pattern with its numbers filled in.
  std::string NameOf(const TensorRule& rule, absl::string_view pattern,
                     int64_t instance) const;
  // The stage of `num_stages` where a tensor lies; -1: several.
  int StageOf(const TensorRule& rule, const std::array<int32_t, 2>& numbers,
              int num_stages) const;
  // The largest number of stages that the model can be cut into.
  int64_t max_stages() const;

 private:
  friend class FamilyBuilder;
  FamilyTable() = default;
  void Index();

  FamilyFacts facts_;
  std::vector<TensorRule> rules_;
  std::vector<std::string> beside_;  // prefixes of names beside the table
  // Pattern to (rule, part) pairs.
  absl::flat_hash_map<std::string,
                      absl::InlinedVector<std::pair<uint32_t, uint32_t>, 2>>
      places_;
};

// Replaces every number between dots by "#"; a number is 0 or has no leading
// zero, and fits int32. More than 4 numbers: false.
bool ToPattern(absl::string_view name, std::string* pattern,
               absl::InlinedVector<int32_t, 4>* numbers);

}  // namespace espalier

#endif  // ESPALIER_IO_FAMILY_TABLE_H_
