// Input: a config.json with a quantization_config; behind a NUL the name of a
// module.

#include <string>

#include "espalier/io/json_object.h"
#include "espalier/io/quantization_config.h"
#include "espalier/tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [text, module] =
      espalier::fuzz::SplitAtNul(espalier::fuzz::Text(data, size));
  const auto json = espalier::JsonObject::Parse(text, "config.json");
  if (!json.ok()) return 0;
  const auto config = espalier::QuantizationConfig::Parse(*json);
  if (!config.ok()) return 0;
  (void)config->GroupOf(module);
  (void)config->GroupOf(espalier::fuzz::Repeated(module, 512));
  (void)config->GroupOf("model.layers.0.mlp.experts.3.up_proj");
  return 0;
}
