#include "espalier/io/internal/jinja_runtime.h"

#include <algorithm>
#include <limits>

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

bool JinjaRuntime::Grow(absl::string_view what, uint64_t bytes, uint64_t more) {
  if (failed()) return false;
  if (bytes > static_cast<uint64_t>(limits_.max_value_bytes)) {
    Stop(absl::StatusCode::kResourceExhausted,
         absl::StrCat(what, " makes a value of ", bytes,
                      " bytes or more, expected at most ",
                      limits_.max_value_bytes));
    return false;
  }
  if (more > static_cast<uint64_t>(limits_.max_text_bytes - text_bytes_)) {
    Stop(absl::StatusCode::kResourceExhausted,
         absl::StrCat(what, ": the template makes more than ",
                      limits_.max_text_bytes, " bytes of text and lists"));
    return false;
  }
  text_bytes_ += static_cast<int64_t>(more);
  return true;
}

bool JinjaRuntime::MakeCase(absl::string_view what, const JinjaString& text) {
  const auto ascii =
      std::count_if(text.bytes().begin(), text.bytes().end(),
                    [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  const size_t others = text.size() - static_cast<size_t>(ascii);
  return Make(what, text.cost() + 2 * others);
}

uint64_t JinjaRuntime::Product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product)
             ? std::numeric_limits<uint64_t>::max()
             : product;
}

bool JinjaTextMaker::Room(size_t bytes) {
  bytes_ += bytes;
  return runtime_.Grow(what_, bytes_, bytes);
}

void JinjaTextMaker::Append(absl::string_view bytes, const JinjaMark& mark) {
  if (Room(bytes.size())) out_.Append(bytes, mark);
}

void JinjaTextMaker::Append(const JinjaString& text, size_t begin, size_t end) {
  if (begin >= end || !Room(end - begin)) return;
  out_.Append(text, begin, end);
  // No more marks than `text` has, which were paid for.
  if (out_.runs().size() > num_runs_) {
    Room((out_.runs().size() - num_runs_) * sizeof(JinjaRun));
    num_runs_ = out_.runs().size();
  }
}

void JinjaTextMaker::Append(const JinjaValue& value) {
  if (value.is_string()) {
    Append(value.text());
  } else {
    Append(ToStr(runtime_, value));
  }
}

void JinjaTextMaker::AppendFill(int64_t count, char fill) {
  if (count <= 0 || !Room(static_cast<size_t>(count))) return;
  out_.Append(std::string(static_cast<size_t>(count), fill), JinjaMark());
}

void SetMember(JinjaRuntime& runtime, const JinjaValue& key, JinjaValue value,
               JinjaDictObject* dict) {
  if (key.is(JinjaKind::kTuple)) {
    runtime.Unsupported("a tuple as a key");
    return;
  }
  if (!IsKey(key)) {
    runtime.Fail("a ", key.type_name(), " is no key of a dict");
    return;
  }
  // Keys that are no text are looked for one by one.
  const size_t scanned = key.is_string() ? 1 : dict->members().size();
  const size_t name = key.is_string() ? key.text().size() : 0;
  if (runtime.Spend(static_cast<int64_t>(scanned)) &&
      runtime.MakeTexts("dict", 1) && runtime.Make("dict", name)) {
    dict->Set(key, std::move(value));
  }
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
