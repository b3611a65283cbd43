// Input: a template; behind a NUL the JSON of an object with the variables.

#include <vector>

#include "espalier/io/jinja.h"
#include "espalier/io/json.h"
#include "espalier/tests/fuzz/fuzz_input.h"

namespace espalier {
namespace {

constexpr char kVariables[] =
    R"({"messages":[{"role":"system","content":"Be <b>brief</b>."},)"
    R"({"role":"user","content":" Hi\n"},{"role":"assistant","content":)"
    R"([{"type":"text","text":"y\u00e9"}],"tool_calls":[{"function":)"
    R"({"name":"f","arguments":{"x":1,"y":[true,null,2.5]}}}]}],)"
    R"("bos_token":"<s>","n":7,"l":[3,1,2],"s":"abc",)"
    R"("add_generation_prompt":true,"tools":null})";

void CheckRuns(const JinjaOutput& output) {
  size_t at = 0;
  for (const JinjaRun& run : output.runs) {
    fuzz::Require(run.end > at, "runs are not empty");
    at = run.end;
  }
  fuzz::Require(at == output.text.size(), "runs cover the text");
}

void Render(absl::string_view source, const JsonValue& values) {
  JinjaOptions options;
  options.limits.max_steps = 100'000;
  options.limits.max_text_bytes = 4 << 20;
  options.limits.max_output_bytes = 1 << 20;
  const auto parsed = JinjaTemplate::Parse(source, "template", options);
  if (!parsed.ok()) return;
  std::vector<JinjaVariable> variables;
  for (const JsonMember& member : *values.AsObject()) {
    JinjaVariable& variable = variables.emplace_back();
    variable.name = member.key;
    variable.value = &member.value;
    if (member.key == "messages" && member.value.AsArray() != nullptr) {
      variable.origin = JinjaVariable::Origin::kItems;
      variable.template_members = {"role"};
    }
  }
  JinjaRenderOptions render;
  render.now_seconds = 1'700'000'000;
  const auto output = parsed->Render(variables, render);
  if (output.ok()) CheckRuns(*output);
}

}  // namespace
}  // namespace espalier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [source, json] =
      espalier::fuzz::SplitAtNul(espalier::fuzz::Text(data, size));
  const auto values = espalier::ParseJsonText(
      json.empty() ? absl::string_view(espalier::kVariables) : json);
  if (!values.ok() || values->AsObject() == nullptr) return 0;
  espalier::Render(source, *values);
  return 0;
}
