#ifndef ESPALIER_IO_QUANTIZATION_CONFIG_H_
#define ESPALIER_IO_QUANTIZATION_CONFIG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/folder.h"
#include "espalier/io/json_object.h"

namespace espalier {

namespace internal {
class NamePattern;
}

// How a checkpoint says that its weights are packed.
enum class QuantMethod : uint8_t {
  kNone,               // no quantization_config
  kFp8,                // DeepSeek, GLM, Qwen: F8_E4M3 with block scales
  kCompressedTensors,  // weight_packed, or F8_E4M3 with weight_scale
  kMxfp4,              // gpt-oss: _blocks and _scales
  kModelOpt,           // U8 weight with weight_scale and weight_scale_2
  kBitsAndBytes,       // NF4 codes with absmax and quant_map
};
absl::string_view ToString(QuantMethod method);

// One group of compressed-tensors' config_groups.
struct QuantizationGroup {
  std::string name;
  std::string format;  // "pack-quantized", "mxfp4-pack-quantized", ...
  int64_t num_bits = 0;
  std::string type;        // "int" | "float"
  std::string strategy;    // "tensor" | "channel" | "group" | "tensor_group" |
                           // "block"
  int64_t group_size = 0;  // 0 when the strategy has none
  bool symmetric = true;
  bool reordered = false;  // actorder: columns have a weight_g_idx
};

// quantization_config of a config.json, also inside its text_config, read
// strictly: what would change the values and is not known is refused by name.
class QuantizationConfig {
 public:
  QuantizationConfig();  // kNone
  // `config` is the whole config.json. Fails INVALID_ARGUMENT or UNIMPLEMENTED
  // with the key: another quant_method, format, number of bits or strategy;
  // both an outer and an inner quantization_config. Who only looks at tensors
  // or cuts them takes all of these; who decodes them asks CheckDecodable too.
  static absl::StatusOr<QuantizationConfig> Parse(const JsonObject& config);
  // UNIMPLEMENTED or INVALID_ARGUMENT, naming the key: bitsandbytes; blocks of
  // FP8 of another size than 128 x 128.
  absl::Status CheckDecodable() const;
  // The config.json of a folder, decodable; kNone where the folder has none.
  static absl::StatusOr<QuantizationConfig> ReadFolder(const std::string& dir);
  static absl::StatusOr<QuantizationConfig> ReadFolder(const Folder& folder);

  QuantMethod method() const { return method_; }
  const std::vector<QuantizationGroup>& groups() const { return groups_; }
  // kFp8: rows and columns that share a scale.
  const std::vector<int64_t>& block() const { return block_; }
  // kModelOpt: its quant_algo.
  const std::string& algorithm() const { return algorithm_; }
  // "config.json: quantization_config", for messages.
  const std::string& where() const { return where_; }

  // compressed-tensors: the group of a module ("model.layers.0.mlp.up_proj"),
  // null when the module is ignored or no target names it. A target or ignore
  // entry is a module's name, "re:" with an expression that matches from its
  // beginning, or a class name: "Linear" stands for every module with weights.
  absl::StatusOr<const QuantizationGroup*> GroupOf(
      absl::string_view module) const;

 private:
  struct Rule {
    std::string name;
    std::shared_ptr<const internal::NamePattern> expression;  // null: by name
  };
  static absl::StatusOr<Rule> MakeRule(const std::string& text);
  static absl::StatusOr<bool> Matches(const Rule& rule,
                                      absl::string_view module);
  absl::Status ParseFp8(const JsonObject& json);
  static absl::Status ParseBitsAndBytes(const JsonObject& json);
  absl::Status ParseCompressedTensors(const JsonObject& json);
  absl::Status ParseGroup(const std::string& name, const JsonObject& json,
                          const std::string& format);

  QuantMethod method_ = QuantMethod::kNone;
  std::string where_;
  std::vector<int64_t> block_ = {128, 128};
  std::string algorithm_ = "NVFP4";
  std::vector<QuantizationGroup> groups_;
  std::vector<std::vector<Rule>> targets_;  // one list for each group
  std::vector<Rule> ignore_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_QUANTIZATION_CONFIG_H_
