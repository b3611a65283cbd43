#include "espalier/io/internal/jinja_runtime.h"

#include <algorithm>

namespace espalier::internal {

JinjaValue JinjaRuntime::Stop(absl::StatusCode code,
                              const std::string& message) {
  if (status_.ok()) {
    status_ = absl::Status(code, absl::StrCat("line ", line, ": ", message));
  }
  return JinjaValue();
}

bool JinjaRuntime::IsDefined(const JinjaValue& value) {
  if (value.is_undefined()) Fail(value.reason());
  return !value.is_undefined();
}

bool JinjaRuntime::Spend(int64_t steps) {
  if (failed()) return false;
  if (steps > limits_.max_steps - steps_) {
    Stop(absl::StatusCode::kResourceExhausted,
         absl::StrCat("the template takes more than ", limits_.max_steps,
                      " steps"));
    return false;
  }
  steps_ += steps;
  return true;
}

bool JinjaRuntime::SpendText(size_t bytes) {
  if (failed()) return false;
  if (bytes > static_cast<size_t>(limits_.max_text_bytes - text_bytes_)) {
    Stop(absl::StatusCode::kResourceExhausted,
         absl::StrCat("the template makes more than ", limits_.max_text_bytes,
                      " bytes of text"));
    return false;
  }
  text_bytes_ += static_cast<int64_t>(bytes);
  return true;
}

bool IntOf(JinjaRuntime& runtime, absl::string_view what,
           const JinjaValue& value, int64_t* out) {
  if (value.is_integral()) {
    *out = value.integer();
    return true;
  }
  if (runtime.IsDefined(value)) {
    runtime.Fail(what, " needs an int, got a ", value.type_name());
  }
  return false;
}

bool Bind(JinjaRuntime& runtime, absl::string_view what,
          std::initializer_list<absl::string_view> names, size_t num_required,
          const JinjaArguments& arguments, JinjaBound* bound) {
  bound->values.assign(names.size(), JinjaValue());
  bound->given.assign(names.size(), false);
  if (arguments.positional.size() > names.size()) {
    runtime.Fail(what, " takes at most ", names.size(), " arguments, got ",
                 arguments.positional.size());
    return false;
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound->values[i] = arguments.positional[i];
    bound->given[i] = true;
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    const size_t i = static_cast<size_t>(found - names.begin());
    if (found == names.end() || bound->given[i]) {
      runtime.Fail(
          what,
          found == names.end() ? " has no argument \"" : " is given twice \"",
          name, "\"");
      return false;
    }
    bound->values[i] = value;
    bound->given[i] = true;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!bound->given[i]) {
      runtime.Fail(what, " lacks the argument \"", names.begin()[i], "\"");
      return false;
    }
  }
  return true;
}

}  // namespace espalier::internal
