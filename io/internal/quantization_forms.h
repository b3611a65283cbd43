#ifndef ESPALIER_IO_INTERNAL_QUANTIZATION_FORMS_H_
#define ESPALIER_IO_INTERNAL_QUANTIZATION_FORMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/io/family_table.h"
#include "espalier/io/json_object.h"

namespace espalier {

// How a checkpoint stores its quantised linear layers: the
// quantization_config of config.json (models-dsa-and-common D).
struct QuantizationScheme {
  enum class Kind : uint8_t {
    kNone,
    kBlockFp8,     // weight F8_E4M3, weight_scale_inv of 128 x 128 blocks
    kFloat8,       // compressed-tensors float-, naive-, mxfp8-quantized:
                   // weight, weight_scale
    kPackedInt,    // compressed-tensors pack-quantized
    kMxfp4,        // compressed-tensors mxfp4-pack-quantized
    kNvfp4,        // compressed-tensors nvfp4-pack-quantized
    kGptOssMxfp4,  // _blocks and _scales of stacked experts
    kModelOpt,     // NVFP4: weight, weight_scale, weight_scale_2
    kNf4,          // bitsandbytes
  };
  Kind kind = Kind::kNone;
  std::string name;  // "mxfp4-pack-quantized", "" for none
  int64_t bits = 4;
  int64_t group_size = 0;    // columns that share a scale; 0: a whole row
  int64_t block_rows = 128;  // FP8
  int64_t block_cols = 128;
};

// The scheme of a whole config.json, read by QuantizationConfig::Parse; fails
// as that does. UNIMPLEMENTED for groups that are stored differently.
absl::StatusOr<QuantizationScheme> ReadQuantization(const JsonObject& config);

// Gives the rule its dense form, and the scheme's form where the rule is a
// linear layer: a matrix whose name ends in ".weight".
void AddForms(const QuantizationScheme& scheme, TensorRule* rule);

// The dtypes of a dense tensor, as a set for StoredPart::dtypes.
uint32_t FloatDTypes();
constexpr uint32_t DTypeBit(SafetensorsDType dtype) {
  return uint32_t{1} << static_cast<int>(dtype);
}

}  // namespace espalier

#endif  // ESPALIER_IO_INTERNAL_QUANTIZATION_FORMS_H_
