#ifndef ESPALIER_IO_INTERNAL_JINJA_RUNTIME_H_
#define ESPALIER_IO_INTERNAL_JINJA_RUNTIME_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "espalier/io/internal/jinja_value.h"
#include "espalier/io/jinja.h"

namespace espalier::internal {

// What a running template has left, and the first thing that went wrong.
// Whatever runs after a failure is cheap and its value does not matter.
class JinjaRuntime {
 public:
  JinjaRuntime(const JinjaLimits& limits, const JinjaRenderOptions& options)
      : limits_(limits), options_(options) {}

  bool failed() const { return !status_.ok(); }
  const absl::Status& status() const { return status_; }
  // The value is undefined, for the caller to return.
  template <typename... Parts>
  JinjaValue Fail(const Parts&... parts) {
    return Stop(absl::StatusCode::kInvalidArgument, absl::StrCat(parts...));
  }
  template <typename... Parts>
  JinjaValue Unsupported(const Parts&... parts) {
    return Stop(absl::StatusCode::kUnimplemented,
                absl::StrCat(parts..., " is not supported"));
  }
  // Fails with its reason where the value is undefined.
  bool IsDefined(const JinjaValue& value);

  // These fail and give false where there is not enough left.
  bool Spend(int64_t steps = 1);
  // Before `what` makes a text or a list of so many bytes.
  bool Make(absl::string_view what, uint64_t bytes) {
    return Grow(what, bytes, bytes);
  }
  // Before one of `bytes` so far, `more` among them, grows by `more`.
  bool Grow(absl::string_view what, uint64_t bytes, uint64_t more);
  bool MakeItems(absl::string_view what, uint64_t count) {
    return Make(what, Product(count, sizeof(JinjaValue)));
  }
  // Items that are texts of their own, small ones.
  bool MakeTexts(absl::string_view what, uint64_t count) {
    return Make(what, Product(count, kTextBytes));
  }
  // Before `what` maps the case of text: a character becomes three at most.
  bool MakeCase(absl::string_view what, const JinjaString& text);
  // The most that one value may hold, and one more.
  size_t max_texts() const {
    return static_cast<size_t>(limits_.max_value_bytes) / kTextBytes + 1;
  }
  // Bounded by the largest number.
  static uint64_t Product(uint64_t a, uint64_t b);

  void TooDeep() {
    Stop(absl::StatusCode::kResourceExhausted,
         absl::StrCat("the template runs deeper than ", limits_.max_depth));
  }
  void TooLong() {
    Stop(absl::StatusCode::kResourceExhausted,
         absl::StrCat("the text is longer than ", limits_.max_output_bytes,
                      " bytes"));
  }

  const JinjaLimits& limits() const { return limits_; }
  const JinjaRenderOptions& options() const { return options_; }

  int line = 1;  // of what runs

 private:
  // A short text as a value, its object and marks.
  static constexpr size_t kTextBytes = 160;

  JinjaValue Stop(absl::StatusCode code, const std::string& message);

  const JinjaLimits limits_;
  const JinjaRenderOptions options_;
  int64_t steps_ = 0;
  int64_t text_bytes_ = 0;
  absl::Status status_;
};

// A text that `what` makes piece by piece, each with room asked for first.
class JinjaTextMaker {
 public:
  JinjaTextMaker(JinjaRuntime& runtime, absl::string_view what)
      : runtime_(runtime), what_(what) {}

  // Nothing is added after a failure.
  void Append(absl::string_view bytes, const JinjaMark& mark);
  void Append(const JinjaString& text) { Append(text, 0, text.size()); }
  void Append(const JinjaString& text, size_t begin, size_t end);
  void Append(const JinjaValue& value);  // str(value) of Python
  void AppendFill(int64_t count, char fill);
  JinjaString Take() { return std::move(out_); }

 private:
  bool Room(size_t bytes);

  JinjaRuntime& runtime_;
  const absl::string_view what_;
  uint64_t bytes_ = 0;   // of the text and its marks
  size_t num_runs_ = 1;  // counted in
  JinjaString out_;
};

struct JinjaArguments {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string, JinjaValue>> named;
};

// Values by parameter; undefined where `given` is false.
struct JinjaBound {
  std::vector<JinjaValue> values;
  std::vector<bool> given;

  bool has(size_t i) const { return given[i]; }
  const JinjaValue& operator[](size_t i) const { return values[i]; }
};

// Puts arguments in the order of `names`, of which the first num_required must
// be there. Fails, naming `what`, on others and on missing ones.
bool Bind(JinjaRuntime& runtime, absl::string_view what,
          std::initializer_list<absl::string_view> names, size_t num_required,
          const JinjaArguments& arguments, JinjaBound* bound);

// An argument that has to be an int; fails, naming `what`, on others.
bool IntOf(JinjaRuntime& runtime, absl::string_view what,
           const JinjaValue& value, int64_t* out);

// dict[key] = value of Python; fails where the key is none.
void SetMember(JinjaRuntime& runtime, const JinjaValue& key, JinjaValue value,
               JinjaDictObject* dict);

// Something a template can call.
struct JinjaFunctionObject : JinjaObject {
  virtual JinjaValue Call(JinjaRuntime& runtime,
                          const JinjaArguments& arguments) = 0;
};

// What iterating over the value gives: characters of strings, keys of dicts,
// nothing for undefined. Fails for what Python cannot iterate.
std::vector<JinjaValue> Iterate(JinjaRuntime& runtime, const JinjaValue& value);

// str(value) and repr(value) of Python, their room asked for.
JinjaString ToStr(JinjaRuntime& runtime, const JinjaValue& value);
JinjaString ToRepr(JinjaRuntime& runtime, const JinjaValue& value);
std::string FloatRepr(double value);

struct JinjaJsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // a line for every member, behind `indent`
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps of Python, its room asked for.
JinjaString ToJson(JinjaRuntime& runtime, const JinjaValue& value,
                   const JinjaJsonStyle& style);

// == of Python.
bool AreEqual(JinjaRuntime& runtime, const JinjaValue& left,
              const JinjaValue& right);
// -1, 0, 1; fails where Python has no order.
int Compare(JinjaRuntime& runtime, const JinjaValue& left,
            const JinjaValue& right);
bool IsIn(JinjaRuntime& runtime, const JinjaValue& item,
          const JinjaValue& container);

enum class JinjaOperator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
};
JinjaValue Calculate(JinjaRuntime& runtime, JinjaOperator op,
                     const JinjaValue& left, const JinjaValue& right);
JinjaValue Negate(JinjaRuntime& runtime, const JinjaValue& value);

// object.name and object[index] of the sandbox: undefined where there is none.
JinjaValue GetAttribute(JinjaRuntime& runtime, const JinjaValue& object,
                        absl::string_view name);
JinjaValue GetItem(JinjaRuntime& runtime, const JinjaValue& object,
                   const JinjaValue& index);
// object[start:stop:step]; undefined bounds are absent ones.
JinjaValue GetSlice(JinjaRuntime& runtime, const JinjaValue& object,
                    const JinjaValue& start, const JinjaValue& stop,
                    const JinjaValue& step);
// A method of a str, dict, list or tuple; undefined when it has none.
JinjaValue GetMethod(JinjaRuntime& runtime, const JinjaValue& object,
                     absl::string_view name);

// "template" % values and "template".format(values).
JinjaValue FormatPercent(JinjaRuntime& runtime, const JinjaString& format,
                         const JinjaValue& values);
JinjaValue FormatBraces(JinjaRuntime& runtime, const JinjaString& format,
                        const JinjaArguments& arguments);
JinjaValue FormatNow(JinjaRuntime& runtime, const JinjaString& format);

// By name; UNIMPLEMENTED for one that is not known.
JinjaValue ApplyFilter(JinjaRuntime& runtime, absl::string_view name,
                       const JinjaValue& value,
                       const JinjaArguments& arguments);
bool ApplyTest(JinjaRuntime& runtime, absl::string_view name,
               const JinjaValue& value, const JinjaArguments& arguments);
bool IsKnownFilter(absl::string_view name);
bool IsKnownTest(absl::string_view name);

// The functions that every template sees, by name; undefined for others.
JinjaValue GlobalFunction(absl::string_view name);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_RUNTIME_H_
