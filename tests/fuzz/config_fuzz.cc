// Input: a config.json. JSON that is read is also written and read again.

#include "espalier/io/family_table.h"
#include "espalier/io/json.h"
#include "espalier/io/json_object.h"
#include "espalier/model/llama/config.h"
#include "espalier/model/mistral/config.h"
#include "espalier/model/qwen2/config.h"
#include "espalier/model/qwen3/config.h"
#include "espalier/tests/fuzz/fuzz_input.h"

namespace espalier {
namespace {

void RoundTrip(const JsonValue& value) {
  const auto text = WriteJson(value);
  fuzz::Require(text.ok(), "what was read can be written");
  const auto again = ParseJsonText(*text);
  fuzz::Require(again.ok(), "what was written can be read");
  const auto second = WriteJson(*again);
  fuzz::Require(second.ok() && *second == *text, "written twice, the same");
}

void ReadConfig(const JsonValue& value) {
  for (const auto parse : {llama::ParseConfig, mistral::ParseConfig,
                           qwen2::ParseConfig, qwen3::ParseConfig}) {
    const auto family = JsonObject::From(value, "config.json");
    if (!family.ok()) return;
    (void)parse(*family);
    (void)family->Unused();
  }
  const auto json = JsonObject::From(value, "config.json");
  const auto table = FamilyTable::FromConfig(*json);
  if (!table.ok()) return;
  for (const TensorRule& rule : table->rules()) {
    if (rule.num_instances() == 0) continue;
    const std::string name = table->NameOf(rule, rule.name, 0);
    FamilyTable::Match match;
    (void)table->Find(name, rule.dtype, &match);
    (void)table->StageOf(rule, match.numbers, 2);
    (void)rule.num_elements();
  }
  (void)table->max_stages();
}

}  // namespace
}  // namespace espalier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value = espalier::ParseJsonText(espalier::fuzz::Text(data, size));
  if (!value.ok()) return 0;
  espalier::RoundTrip(*value);
  espalier::ReadConfig(*value);
  return 0;
}
