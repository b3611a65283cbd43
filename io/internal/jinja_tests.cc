// What may stand behind "is".
#include <cmath>

#include "espalier/io/internal/jinja_filters.h"

namespace espalier::internal {

namespace {

using TestFn = bool(JinjaRuntime& runtime, const JinjaValue& value,
                    const JinjaValue& argument);

struct Test {
  absl::string_view name;
  size_t num_arguments;
  TestFn* passes;
};

bool IsSequenceKind(const JinjaValue& value) {
  switch (value.kind()) {
    case JinjaKind::kString:
    case JinjaKind::kList:
    case JinjaKind::kTuple:
    case JinjaKind::kDict:
    case JinjaKind::kRange:
    case JinjaKind::kUndefined:
      return true;
    default:
      return false;
  }
}

bool IsIterableKind(const JinjaValue& value) {
  return IsSequenceKind(value) || value.is(JinjaKind::kIterator) ||
         value.is(JinjaKind::kDictView) || value.is(JinjaKind::kLoop);
}

// value % divisor == rest, for numbers.
bool LeavesRest(JinjaRuntime& runtime, const JinjaValue& value,
                const JinjaValue& divisor, int64_t rest) {
  if (value.is_string()) {
    runtime.Fail("a str is neither odd nor even");
    return false;
  }
  return AreEqual(runtime,
                  Calculate(runtime, JinjaOperator::kModulo, value, divisor),
                  JinjaValue::Int(rest));
}

// Whether there are cased characters, all of this case.
bool HasCase(JinjaRuntime& runtime, const JinjaValue& value,
             LetterCase wanted) {
  const JinjaString text = ToStr(runtime, value);
  if (!runtime.MakeCase("a test of case", text) ||
      !runtime.MakeCase("a test of case", text)) {
    return false;
  }
  const JinjaString same = MapCase(text, wanted);
  const JinjaString other =
      MapCase(text, wanted == LetterCase::kLower ? LetterCase::kUpper
                                                 : LetterCase::kLower);
  return text.bytes() == same.bytes() && same.bytes() != other.bytes();
}

constexpr Test kTests[] = {
    {"defined", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return !v.is_undefined();
     }},
    {"undefined", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is_undefined();
     }},
    {"none", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is(JinjaKind::kNone);
     }},
    {"boolean", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is(JinjaKind::kBool);
     }},
    {"true", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is(JinjaKind::kBool) && v.integer() != 0;
     }},
    {"false", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is(JinjaKind::kBool) && v.integer() == 0;
     }},
    {"integer", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is(JinjaKind::kInt);
     }},
    {"float", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is(JinjaKind::kFloat);
     }},
    {"number", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is_number();
     }},
    {"string", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is_string();
     }},
    {"mapping", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is(JinjaKind::kDict);
     }},
    {"sequence", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return IsSequenceKind(v);
     }},
    {"iterable", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return IsIterableKind(v);
     }},
    {"callable", 0,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue&) {
       return v.is(JinjaKind::kFunction) || v.is_undefined() ||
              v.is(JinjaKind::kLoop);
     }},
    {"odd", 0,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue&) {
       return LeavesRest(r, v, JinjaValue::Int(2), 1);
     }},
    {"even", 0,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue&) {
       return LeavesRest(r, v, JinjaValue::Int(2), 0);
     }},
    {"divisibleby", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return LeavesRest(r, v, a, 0);
     }},
    {"lower", 0,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue&) {
       return HasCase(r, v, LetterCase::kLower);
     }},
    {"upper", 0,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue&) {
       return HasCase(r, v, LetterCase::kUpper);
     }},
    {"sameas", 1,
     [](JinjaRuntime&, const JinjaValue& v, const JinjaValue& a) {
       return AreSame(v, a);
     }},
    {"in", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return IsIn(r, v, a);
     }},
    {"==", 1, AreEqual},
    {"eq", 1, AreEqual},
    {"equalto", 1, AreEqual},
    {"!=", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return !AreEqual(r, v, a);
     }},
    {"ne", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return !AreEqual(r, v, a);
     }},
    {">", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return Compare(r, v, a) > 0;
     }},
    {"gt", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return Compare(r, v, a) > 0;
     }},
    {"greaterthan", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return Compare(r, v, a) > 0;
     }},
    {">=", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return Compare(r, v, a) >= 0;
     }},
    {"ge", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return Compare(r, v, a) >= 0;
     }},
    {"<", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return Compare(r, v, a) < 0;
     }},
    {"lt", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return Compare(r, v, a) < 0;
     }},
    {"lessthan", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return Compare(r, v, a) < 0;
     }},
    {"<=", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return Compare(r, v, a) <= 0;
     }},
    {"le", 1,
     [](JinjaRuntime& r, const JinjaValue& v, const JinjaValue& a) {
       return Compare(r, v, a) <= 0;
     }},
};

const Test* FindTest(absl::string_view name) {
  for (const Test& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace

bool IsKnownTest(absl::string_view name) { return FindTest(name) != nullptr; }

bool ApplyTest(JinjaRuntime& runtime, absl::string_view name,
               const JinjaValue& value, const JinjaArguments& arguments) {
  if (!runtime.Spend()) return false;
  const Test* test = FindTest(name);
  if (test == nullptr) {
    runtime.Unsupported("the test ", name);
    return false;
  }
  if (arguments.positional.size() != test->num_arguments ||
      !arguments.named.empty()) {
    runtime.Fail("the test ", name, " takes ", test->num_arguments,
                 " arguments");
    return false;
  }
  const JinjaValue argument =
      test->num_arguments > 0 ? arguments.positional[0] : JinjaValue();
  return test->passes(runtime, value, argument);
}

}  // namespace espalier::internal
