// Expressions, and the functions that every template sees.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/jinja_filters.h"
#include "espalier/io/internal/jinja_machine.h"
#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

constexpr int kMaxValueDepth = 300;
constexpr int64_t kMaxRange = 100000;  // the sandbox's own

// range(stop), range(start, stop), range(start, stop, step).
JinjaValue Range(JinjaRuntime& runtime, const JinjaArguments& arguments) {
  const auto& values = arguments.positional;
  if (values.empty() || values.size() > 3 || !arguments.named.empty()) {
    return runtime.Fail("range takes 1 to 3 arguments");
  }
  int64_t numbers[3] = {0, 0, 1};
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].is_integral()) {
      if (!runtime.IsDefined(values[i])) return {};
      return runtime.Fail("range needs ints, got a ", values[i].type_name());
    }
    numbers[i] = values[i].integer();
  }
  constexpr int64_t kBound = int64_t{1} << 60;
  auto range = std::make_shared<JinjaRangeObject>();
  range->start = values.size() == 1 ? 0 : numbers[0];
  range->stop = values.size() == 1 ? numbers[0] : numbers[1];
  range->step = numbers[2];
  for (const int64_t number : numbers) {
    if (number > kBound || number < -kBound) {
      return runtime.Fail("range goes too far");
    }
  }
  if (range->step == 0) return runtime.Fail("the step of range is 0");
  if (range->size() > kMaxRange) {
    return runtime.Fail("range has more than ", kMaxRange, " numbers");
  }
  return JinjaValue::Of(JinjaKind::kRange, std::move(range));
}

// dict(mapping or pairs, name=value, ...).
std::shared_ptr<JinjaDictObject> MakeDict(JinjaRuntime& runtime,
                                          const JinjaArguments& arguments) {
  auto dict = std::make_shared<JinjaDictObject>();
  if (arguments.positional.size() > 1) {
    runtime.Fail("dict takes at most one mapping");
    return dict;
  }
  if (!arguments.positional.empty()) {
    const JinjaValue& from = arguments.positional[0];
    if (from.is(JinjaKind::kDict)) {
      for (const auto& [key, value] :
           from.object<JinjaDictObject>().members()) {
        SetMember(runtime, key, value, dict.get());
      }
    } else {
      for (const JinjaValue& item : Iterate(runtime, from)) {
        const std::vector<JinjaValue> pair = Iterate(runtime, item);
        if (pair.size() != 2) {
          runtime.Fail("dict needs pairs");
          return dict;
        }
        SetMember(runtime, pair[0], pair[1], dict.get());
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    SetMember(runtime, JinjaValue::String(name), value, dict.get());
  }
  return dict;
}

JinjaValue Dict(JinjaRuntime& runtime, const JinjaArguments& arguments) {
  return JinjaValue::Of(JinjaKind::kDict, MakeDict(runtime, arguments));
}

JinjaValue RaiseException(JinjaRuntime& runtime,
                          const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "raise_exception", {"message"}, 1, arguments, &bound)) {
    return {};
  }
  return runtime.Fail("the template refuses: ",
                      Quote(ToStr(runtime, bound[0]).bytes(), 400));
}

JinjaValue StrftimeNow(JinjaRuntime& runtime, const JinjaArguments& arguments) {
  JinjaBound bound;
  if (!Bind(runtime, "strftime_now", {"format"}, 1, arguments, &bound)) {
    return {};
  }
  if (!bound[0].is_string()) return runtime.Fail("strftime_now needs a str");
  return FormatNow(runtime, bound[0].text());
}

using GlobalFn = JinjaValue(JinjaRuntime& runtime,
                            const JinjaArguments& arguments);

struct GlobalObject final : JinjaFunctionObject {
  explicit GlobalObject(GlobalFn* function) : function(function) {}
  JinjaValue Call(JinjaRuntime& runtime,
                  const JinjaArguments& arguments) override {
    return function(runtime, arguments);
  }
  GlobalFn* const function;
};

struct NamespaceFunction final : JinjaMachineFunction {
  using JinjaMachineFunction::JinjaMachineFunction;
  JinjaValue Call(JinjaRuntime& runtime,
                  const JinjaArguments& arguments) override {
    if (!runtime.MakeTexts("namespace", 2)) return {};
    auto space = std::make_shared<JinjaNamespaceObject>();
    const auto dict = MakeDict(runtime, arguments);
    for (const auto& [key, value] : dict->members()) {
      if (!key.is_string() || key.text().bytes().substr(0, 1) == "_") {
        return runtime.Fail("a namespace has no such member");
      }
      space->members[key.text().bytes()] = value;
    }
    machine->Own(space);
    return JinjaValue::Of(JinjaKind::kNamespace, std::move(space));
  }
};

constexpr std::pair<absl::string_view, GlobalFn*> kGlobals[] = {
    {"range", Range},
    {"dict", Dict},
    {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
};
constexpr absl::string_view kUnknownGlobals[] = {"lipsum", "cycler", "joiner"};

}  // namespace

JinjaValue GlobalFunction(absl::string_view name) {
  for (const auto& [known, function] : kGlobals) {
    if (known == name) {
      return JinjaValue::Of(JinjaKind::kFunction,
                            std::make_shared<GlobalObject>(function));
    }
  }
  return JinjaValue();
}

JinjaValue JinjaMachine::Eval(const JinjaExpr& expr) {
  const Level level(this);
  if (!runtime_.Spend()) return {};
  const int line = std::exchange(runtime_.line, expr.line);
  JinjaValue value = EvalNode(expr);
  if (runtime_.failed()) return {};
  if (value.depth() > kMaxValueDepth) {
    return runtime_.Fail("a value nests deeper than ", kMaxValueDepth);
  }
  runtime_.line = line;
  return value;
}

JinjaValue JinjaMachine::EvalNode(const JinjaExpr& expr) {
  using Op = JinjaExpr::Op;
  const auto operand = [&](size_t i) { return Eval(*expr.operands[i]); };
  switch (expr.op) {
    case Op::kConstant:
      return expr.constant;
    case Op::kName:
      return Lookup(expr);
    case Op::kAttribute:
      return GetAttribute(runtime_, operand(0), expr.text);
    case Op::kItem: {
      const JinjaValue object = operand(0);
      return GetItem(runtime_, object, operand(1));
    }
    case Op::kSlice: {
      const JinjaValue object = operand(0);
      JinjaValue bounds[3];
      for (size_t i = 0; i < 3; ++i) {
        if (expr.operands[i + 1] == nullptr) continue;
        bounds[i] = operand(i + 1);
        if (!runtime_.IsDefined(bounds[i])) return {};
      }
      return GetSlice(runtime_, object, bounds[0], bounds[1], bounds[2]);
    }
    case Op::kCall:
      return EvalCall(expr, nullptr);
    case Op::kFilter:
      return EvalFilter(expr);
    case Op::kTest: {
      const JinjaValue value = operand(0);
      JinjaArguments arguments;
      if (!EvalArguments(expr.arguments, &arguments)) return {};
      return JinjaValue::Bool(ApplyTest(runtime_, expr.text, value, arguments));
    }
    case Op::kNot:
      return JinjaValue::Bool(!IsTrue(operand(0)));
    case Op::kNegative:
      return Negate(runtime_, operand(0));
    case Op::kPositive: {
      JinjaValue value = operand(0);
      if (value.is_integral()) return JinjaValue::Int(value.integer());
      if (!value.is_number() && runtime_.IsDefined(value)) {
        runtime_.Fail("a ", value.type_name(), " has no sign");
      }
      return value;
    }
    case Op::kCalculate: {
      const JinjaValue left = operand(0);
      return Calculate(runtime_, expr.calculate, left, operand(1));
    }
    case Op::kConcat:
      return EvalConcat(expr);
    case Op::kCompare:
      return EvalCompare(expr);
    case Op::kAnd:
    case Op::kOr: {
      JinjaValue left = operand(0);
      return IsTrue(left) == (expr.op == Op::kOr) ? std::move(left)
                                                  : operand(1);
    }
    case Op::kIf:
      return EvalIf(expr);
    case Op::kList:
    case Op::kTuple: {
      if (!runtime_.MakeItems("[]", expr.operands.size())) return {};
      std::vector<JinjaValue> items;
      for (size_t i = 0; i < expr.operands.size(); ++i) {
        items.push_back(operand(i));
      }
      return expr.op == Op::kList ? JinjaValue::List(std::move(items))
                                  : JinjaValue::Tuple(std::move(items));
    }
    case Op::kDict:
      return EvalDict(expr);
    case Op::kEscaped:
      return EvalEscaped(expr);
  }
  return {};
}

JinjaValue JinjaMachine::Lookup(const JinjaExpr& expr) {
  for (JinjaScope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (JinjaValue* found = scope->FindHere(expr.name)) return *found;
  }
  if (expr.text == "namespace") {
    return JinjaValue::Of(JinjaKind::kFunction,
                          std::make_shared<NamespaceFunction>(this));
  }
  JinjaValue global = GlobalFunction(expr.text);
  if (!global.is_undefined()) return global;
  for (const absl::string_view unknown : kUnknownGlobals) {
    if (unknown == expr.text) {
      return runtime_.Unsupported("the function ", expr.text);
    }
  }
  return JinjaValue::Undefined(absl::StrCat(expr.text, " is undefined"));
}

bool JinjaMachine::EvalArguments(const JinjaCallArguments& arguments,
                                 JinjaArguments* out) {
  for (const JinjaExprPtr& argument : arguments.positional) {
    out->positional.push_back(Eval(*argument));
  }
  for (const auto& [name, argument] : arguments.named) {
    out->named.emplace_back(name, Eval(*argument));
  }
  if (arguments.rest != nullptr) {
    for (JinjaValue& value : Iterate(runtime_, Eval(*arguments.rest))) {
      out->positional.push_back(std::move(value));
    }
  }
  if (arguments.named_rest != nullptr) {
    const JinjaValue rest = Eval(*arguments.named_rest);
    if (!rest.is(JinjaKind::kDict)) {
      if (!runtime_.failed()) runtime_.Fail("** needs a dict");
      return false;
    }
    for (const auto& [key, value] : rest.object<JinjaDictObject>().members()) {
      if (!key.is_string()) {
        runtime_.Fail("** needs keys that are texts");
        return false;
      }
      out->named.emplace_back(key.text().bytes(), value);
    }
  }
  return !runtime_.failed();
}

JinjaValue JinjaMachine::EvalCall(const JinjaExpr& expr,
                                  const JinjaValue* caller) {
  const JinjaValue callee = Eval(*expr.operands[0]);
  JinjaArguments arguments;
  if (!EvalArguments(expr.arguments, &arguments)) return {};
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  if (!callee.is(JinjaKind::kFunction)) {
    if (!runtime_.IsDefined(callee)) return {};
    return runtime_.Fail("a ", callee.type_name(), " cannot be called");
  }
  return callee.object<JinjaFunctionObject>().Call(runtime_, arguments);
}

JinjaValue JinjaMachine::EvalFilter(const JinjaExpr& expr) {
  const JinjaExprPtr& operand = expr.operands[0];
  const JinjaValue value = operand == nullptr ? block_text_ : Eval(*operand);
  JinjaArguments arguments;
  if (!EvalArguments(expr.arguments, &arguments)) return {};
  return ApplyFilter(runtime_, expr.text, value, arguments);
}

JinjaValue JinjaMachine::EvalCompare(const JinjaExpr& expr) {
  JinjaValue left = Eval(*expr.operands[0]);
  for (size_t i = 0; i < expr.compares.size(); ++i) {
    JinjaValue right = Eval(*expr.operands[i + 1]);
    if (runtime_.failed()) return {};
    bool holds = false;
    switch (expr.compares[i]) {
      case JinjaCompare::kEqual:
        holds = AreEqual(runtime_, left, right);
        break;
      case JinjaCompare::kNotEqual:
        holds = !AreEqual(runtime_, left, right);
        break;
      case JinjaCompare::kLess:
        holds = Compare(runtime_, left, right) < 0;
        break;
      case JinjaCompare::kLessEqual:
        holds = Compare(runtime_, left, right) <= 0;
        break;
      case JinjaCompare::kGreater:
        holds = Compare(runtime_, left, right) > 0;
        break;
      case JinjaCompare::kGreaterEqual:
        holds = Compare(runtime_, left, right) >= 0;
        break;
      case JinjaCompare::kIn:
        holds = IsIn(runtime_, left, right);
        break;
      case JinjaCompare::kNotIn:
        holds = !IsIn(runtime_, left, right);
        break;
    }
    if (!holds) return JinjaValue::Bool(false);
    left = std::move(right);
  }
  return JinjaValue::Bool(true);
}

JinjaValue JinjaMachine::EvalConcat(const JinjaExpr& expr) {
  JinjaTextMaker out(runtime_, "~");
  for (const JinjaExprPtr& operand : expr.operands) {
    const JinjaValue value = Eval(*operand);
    if (runtime_.failed()) return {};
    out.Append(value);
  }
  return JinjaValue::String(out.Take());
}

JinjaValue JinjaMachine::EvalDict(const JinjaExpr& expr) {
  auto dict = std::make_shared<JinjaDictObject>();
  for (size_t i = 0; i + 1 < expr.operands.size(); i += 2) {
    const JinjaValue key = Eval(*expr.operands[i]);
    JinjaValue value = Eval(*expr.operands[i + 1]);
    if (runtime_.failed()) return {};
    SetMember(runtime_, key, std::move(value), dict.get());
  }
  return JinjaValue::Of(JinjaKind::kDict, std::move(dict));
}

JinjaValue JinjaMachine::EvalIf(const JinjaExpr& expr) {
  const bool holds = IsTrue(Eval(*expr.operands[0]));
  if (runtime_.failed()) return {};
  if (holds) return Eval(*expr.operands[1]);
  if (expr.operands[2] != nullptr) return Eval(*expr.operands[2]);
  return JinjaValue::Undefined(
      "the inline if has no value where its condition is false: no else");
}

JinjaValue JinjaMachine::EvalEscaped(const JinjaExpr& expr) {
  const JinjaValue value = Eval(*expr.operands[0]);
  if (runtime_.failed()) return {};
  const JinjaString text = ToStr(runtime_, value);
  constexpr std::pair<char, absl::string_view> kEscapes[] = {{'&', "&amp;"},
                                                             {'<', "&lt;"},
                                                             {'>', "&gt;"},
                                                             {'\'', "&#39;"},
                                                             {'"', "&#34;"}};
  JinjaTextMaker out(runtime_, "escape");
  size_t copied = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    for (const auto& [from, to] : kEscapes) {
      if (text.bytes()[at] != from) continue;
      out.Append(text, copied, at);
      out.Append(to, text.MarkAt(at));
      copied = at + 1;
    }
  }
  out.Append(text, copied, text.size());
  return JinjaValue::String(out.Take());
}

}  // namespace espalier::internal
