// The expressions of the parser, in the order of their precedence.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/jinja_parser.h"

namespace espalier::internal {

using Op = JinjaExpr::Op;

namespace {

bool IsMarkupFilter(absl::string_view name) {
  return name == "safe" || name == "e" || name == "escape";
}

}  // namespace

JinjaExprPtr JinjaParser::Make(Op op, int line) {
  auto expr = std::make_unique<JinjaExpr>();
  expr->op = op;
  expr->line = line;
  return expr;
}

JinjaExprPtr JinjaParser::Make(Op op, int line, JinjaExprPtr left,
                               JinjaExprPtr right) {
  JinjaExprPtr expr = Make(op, line);
  expr->operands.push_back(std::move(left));
  if (right != nullptr) expr->operands.push_back(std::move(right));
  return Done(std::move(expr));
}

JinjaExprPtr JinjaParser::Done(JinjaExprPtr expr) {
  const auto add = [&](const JinjaExprPtr& operand) {
    if (operand != nullptr) {
      expr->height = std::max(expr->height, operand->height + 1);
    }
  };
  for (const JinjaExprPtr& operand : expr->operands) add(operand);
  for (const JinjaExprPtr& argument : expr->arguments.positional) {
    add(argument);
  }
  for (const auto& [name, argument] : expr->arguments.named) add(argument);
  add(expr->arguments.rest);
  add(expr->arguments.named_rest);
  if (expr->height > options_.limits.max_nesting) TooDeep();
  return expr;
}

// What {{ }} shows. Only as the last step there may a text be marked as safe or
// escaped: the mark would change what later operators do.
JinjaExprPtr JinjaParser::Printed() {
  JinjaExprPtr expr = Tuple(/*with_if=*/true, /*parentheses=*/false);
  if (!failed() && num_markup_ == 1 && expr->op == Op::kFilter &&
      IsMarkupFilter(expr->text)) {
    num_markup_ = 0;
    if (expr->text == "safe") {
      JinjaExprPtr value = std::move(expr->operands[0]);
      return value;
    }
    expr->op = Op::kEscaped;
  }
  return expr;
}

JinjaExprPtr JinjaParser::Tuple(bool with_if, bool parentheses) {
  const Nested nested(this);
  const int line = current().line;
  std::vector<JinjaExprPtr> items;
  bool is_tuple = false;
  while (!failed()) {
    if (!items.empty()) Expect(",");
    if (IsType(JinjaTokenType::kVariableEnd) ||
        IsType(JinjaTokenType::kBlockEnd) || IsOperator(")") ||
        (!with_if && IsName("recursive"))) {
      break;
    }
    items.push_back(Expression(with_if));
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!parentheses) {
      Fail(absl::StrCat("expected an expression, got ", Describe(current())));
    }
  }
  JinjaExprPtr expr = Make(Op::kTuple, line);
  expr->operands = std::move(items);
  return Done(std::move(expr));
}

JinjaExprPtr JinjaParser::Expression(bool with_if) {
  const Nested nested(this);
  if (failed()) return Make(Op::kConstant, 1);
  if (!with_if) return Or();
  JinjaExprPtr expr = Or();
  while (!failed() && IsName("if")) {
    JinjaExprPtr choice = Make(Op::kIf, current().line);
    Next();
    choice->operands.push_back(Or());
    choice->operands.push_back(std::move(expr));
    choice->operands.push_back(SkipName("else") ? Expression() : nullptr);
    expr = Done(std::move(choice));
  }
  return expr;
}

JinjaExprPtr JinjaParser::Or() {
  JinjaExprPtr left = And();
  while (!failed() && IsName("or")) {
    const int line = current().line;
    Next();
    left = Make(Op::kOr, line, std::move(left), And());
  }
  return left;
}

JinjaExprPtr JinjaParser::And() {
  JinjaExprPtr left = Not();
  while (!failed() && IsName("and")) {
    const int line = current().line;
    Next();
    left = Make(Op::kAnd, line, std::move(left), Not());
  }
  return left;
}

JinjaExprPtr JinjaParser::Not() {
  const Nested nested(this);
  if (!failed() && IsName("not")) {
    const int line = current().line;
    Next();
    return Make(Op::kNot, line, Not(), nullptr);
  }
  return Compare();
}

JinjaExprPtr JinjaParser::Compare() {
  constexpr std::pair<absl::string_view, JinjaCompare> kSymbols[] = {
      {"==", JinjaCompare::kEqual},  {"!=", JinjaCompare::kNotEqual},
      {"<", JinjaCompare::kLess},    {"<=", JinjaCompare::kLessEqual},
      {">", JinjaCompare::kGreater}, {">=", JinjaCompare::kGreaterEqual},
  };
  JinjaExprPtr left = Sum();
  JinjaExprPtr compare;
  while (!failed()) {
    bool found = false;
    JinjaCompare how = JinjaCompare::kIn;
    const int line = current().line;
    for (const auto& [symbol, compared] : kSymbols) {
      if (!found && SkipOperator(symbol)) {
        how = compared;
        found = true;
      }
    }
    if (!found && SkipName("in")) found = true;
    if (!found && IsName("not") && look().type == JinjaTokenType::kName &&
        look().text == "in") {
      Next();
      Next();
      how = JinjaCompare::kNotIn;
      found = true;
    }
    if (!found) break;
    if (compare == nullptr) {
      compare = Make(Op::kCompare, line);
      compare->operands.push_back(std::move(left));
    }
    compare->compares.push_back(how);
    compare->operands.push_back(Sum());
  }
  return compare == nullptr ? std::move(left) : Done(std::move(compare));
}

JinjaExprPtr JinjaParser::Sum() {
  JinjaExprPtr left = Concat();
  while (!failed() && (IsOperator("+") || IsOperator("-"))) {
    const JinjaOperator op =
        IsOperator("+") ? JinjaOperator::kAdd : JinjaOperator::kSubtract;
    const int line = current().line;
    Next();
    left = Make(Op::kCalculate, line, std::move(left), Concat());
    left->calculate = op;
  }
  return left;
}

JinjaExprPtr JinjaParser::Concat() {
  const int line = current().line;
  JinjaExprPtr first = Product();
  if (!IsOperator("~")) return first;
  JinjaExprPtr concat = Make(Op::kConcat, line);
  concat->operands.push_back(std::move(first));
  while (!failed() && SkipOperator("~")) {
    concat->operands.push_back(Product());
  }
  return Done(std::move(concat));
}

JinjaExprPtr JinjaParser::Product() {
  constexpr std::pair<absl::string_view, JinjaOperator> kSymbols[] = {
      {"*", JinjaOperator::kMultiply},
      {"/", JinjaOperator::kDivide},
      {"//", JinjaOperator::kFloorDivide},
      {"%", JinjaOperator::kModulo},
  };
  JinjaExprPtr left = Power();
  while (!failed()) {
    const int line = current().line;
    bool found = false;
    for (const auto& [symbol, op] : kSymbols) {
      if (found || !SkipOperator(symbol)) continue;
      found = true;
      left = Make(Op::kCalculate, line, std::move(left), Power());
      left->calculate = op;
    }
    if (!found) break;
  }
  return left;
}

// Left to right, unlike Python.
JinjaExprPtr JinjaParser::Power() {
  JinjaExprPtr left = Unary(/*with_filter=*/true);
  while (!failed() && IsOperator("**")) {
    const int line = current().line;
    Next();
    left = Make(Op::kCalculate, line, std::move(left),
                Unary(/*with_filter=*/true));
    left->calculate = JinjaOperator::kPower;
  }
  return left;
}

JinjaExprPtr JinjaParser::Unary(bool with_filter) {
  const Nested nested(this);
  if (failed()) return Make(Op::kConstant, 1);
  const int line = current().line;
  JinjaExprPtr expr;
  if (SkipOperator("-")) {
    expr = Make(Op::kNegative, line, Unary(false), nullptr);
  } else if (SkipOperator("+")) {
    expr = Make(Op::kPositive, line, Unary(false), nullptr);
  } else {
    expr = Primary();
  }
  expr = Postfix(std::move(expr));
  if (with_filter) expr = Filters(std::move(expr));
  return expr;
}

JinjaExprPtr JinjaParser::Primary() {
  const JinjaToken& token = current();
  JinjaExprPtr expr = Make(Op::kConstant, token.line);
  switch (token.type) {
    case JinjaTokenType::kName:
      if (token.text == "true" || token.text == "True") {
        expr->constant = JinjaValue::Bool(true);
      } else if (token.text == "false" || token.text == "False") {
        expr->constant = JinjaValue::Bool(false);
      } else if (token.text == "none" || token.text == "None") {
        expr->constant = JinjaValue::None();
      } else {
        if (token.text == "caller") caller_seen_ = true;
        if (token.text == "varargs" || token.text == "kwargs" ||
            token.text == "self" || token.text == "super") {
          Unsupported(token.text);
        }
        expr->op = Op::kName;
        expr->name = Intern(token.text);
        expr->text = token.text;
      }
      Next();
      return expr;
    case JinjaTokenType::kString: {
      std::string text;
      while (IsType(JinjaTokenType::kString)) {
        absl::StrAppend(&text, current().text);
        Next();
      }
      absl::StrAppend(&tree_.literal_text, text, "\n");
      expr->constant = JinjaValue::String(text);
      return expr;
    }
    case JinjaTokenType::kInteger:
      expr->constant = JinjaValue::Int(token.integer);
      Next();
      return expr;
    case JinjaTokenType::kFloat:
      expr->constant = JinjaValue::Float(token.number);
      Next();
      return expr;
    default:
      break;
  }
  if (SkipOperator("(")) {
    expr = Tuple(/*with_if=*/true, /*parentheses=*/true);
    Expect(")");
    return expr;
  }
  if (IsOperator("[")) return ListLiteral();
  if (IsOperator("{")) return DictLiteral();
  Fail(absl::StrCat("unexpected ", Describe(token)));
  return expr;
}

JinjaExprPtr JinjaParser::ListLiteral() {
  JinjaExprPtr list = Make(Op::kList, current().line);
  Expect("[");
  while (!failed() && !IsOperator("]")) {
    if (!list->operands.empty()) Expect(",");
    if (IsOperator("]")) break;
    list->operands.push_back(Expression());
  }
  Expect("]");
  return Done(std::move(list));
}

JinjaExprPtr JinjaParser::DictLiteral() {
  JinjaExprPtr dict = Make(Op::kDict, current().line);
  Expect("{");
  while (!failed() && !IsOperator("}")) {
    if (!dict->operands.empty()) Expect(",");
    if (IsOperator("}")) break;
    dict->operands.push_back(Expression());
    Expect(":");
    dict->operands.push_back(Expression());
  }
  Expect("}");
  return Done(std::move(dict));
}

JinjaExprPtr JinjaParser::Postfix(JinjaExprPtr expr) {
  while (!failed()) {
    if (IsOperator(".") || IsOperator("[")) {
      expr = Subscript(std::move(expr));
    } else if (IsOperator("(")) {
      expr = CallOf(std::move(expr));
    } else {
      break;
    }
  }
  return expr;
}

JinjaExprPtr JinjaParser::Filters(JinjaExprPtr expr) {
  while (!failed()) {
    if (IsOperator("|")) {
      expr = FilterOf(std::move(expr));
    } else if (IsName("is")) {
      expr = TestOf(std::move(expr));
    } else if (IsOperator("(")) {
      expr = CallOf(std::move(expr));
    } else {
      break;
    }
  }
  return expr;
}

JinjaExprPtr JinjaParser::Subscript(JinjaExprPtr object) {
  const int line = current().line;
  if (SkipOperator(".")) {
    if (IsType(JinjaTokenType::kInteger)) {
      JinjaExprPtr index = Make(Op::kConstant, line);
      index->constant = JinjaValue::Int(current().integer);
      Next();
      return Make(Op::kItem, line, std::move(object), std::move(index));
    }
    JinjaExprPtr attribute = Make(Op::kAttribute, line);
    attribute->text = ExpectName();
    attribute->operands.push_back(std::move(object));
    return Done(std::move(attribute));
  }
  Expect("[");
  JinjaExprPtr bounds[3];
  bool slice = false;
  for (int i = 0; i < 3 && !failed(); ++i) {
    if (!IsOperator(":") && !IsOperator("]")) bounds[i] = Expression();
    if (i == 2 || !SkipOperator(":")) break;
    slice = true;
  }
  if (IsOperator(",")) Unsupported("an index of several values");
  Expect("]");
  if (!slice && bounds[0] == nullptr) Fail("an index is missing");
  if (failed()) return object;
  if (!slice) {
    return Make(Op::kItem, line, std::move(object), std::move(bounds[0]));
  }
  JinjaExprPtr expr = Make(Op::kSlice, line);
  expr->operands.push_back(std::move(object));
  for (JinjaExprPtr& bound : bounds) {
    expr->operands.push_back(std::move(bound));
  }
  return Done(std::move(expr));
}

JinjaExprPtr JinjaParser::CallOf(JinjaExprPtr callee) {
  JinjaExprPtr call = Make(Op::kCall, current().line);
  call->operands.push_back(std::move(callee));
  call->arguments = Arguments();
  return Done(std::move(call));
}

JinjaCallArguments JinjaParser::Arguments() {
  JinjaCallArguments arguments;
  Expect("(");
  bool first = true;
  while (!failed() && !IsOperator(")")) {
    if (!first) {
      Expect(",");
      if (IsOperator(")")) break;
    }
    first = false;
    bool valid = arguments.named_rest == nullptr;
    if (SkipOperator("**")) {
      arguments.named_rest = Expression();
    } else if (SkipOperator("*")) {
      valid = valid && arguments.rest == nullptr;
      arguments.rest = Expression();
    } else if (IsType(JinjaTokenType::kName) &&
               look().type == JinjaTokenType::kOperator && look().text == "=") {
      std::string name = ExpectName();
      Next();
      arguments.named.emplace_back(std::move(name), Expression());
    } else {
      valid = valid && arguments.named.empty() && arguments.rest == nullptr;
      arguments.positional.push_back(Expression());
    }
    if (!valid) Fail("the arguments of a call are in the wrong order");
  }
  Expect(")");
  return arguments;
}

JinjaExprPtr JinjaParser::FilterOf(JinjaExprPtr value) {
  JinjaExprPtr filter = Make(Op::kFilter, current().line);
  filter->operands.push_back(std::move(value));
  SkipOperator("|");  // absent in filter blocks
  filter->text = ExpectName();
  if (IsOperator(".")) Unsupported("a filter with a dot in its name");
  if (!failed() && IsOperator("(")) filter->arguments = Arguments();
  if (IsMarkupFilter(filter->text)) {
    ++num_markup_;
    if (!filter->arguments.positional.empty()) Fail("too many arguments");
  } else if (!failed() && !IsKnownFilter(filter->text)) {
    Unsupported(absl::StrCat("the filter ", filter->text));
  }
  return Done(std::move(filter));
}

JinjaExprPtr JinjaParser::TestOf(JinjaExprPtr value) {
  const int line = current().line;
  Next();  // is
  const bool negated = SkipName("not");
  JinjaExprPtr test = Make(Op::kTest, line);
  test->operands.push_back(std::move(value));
  test->text = ExpectName();
  if (failed()) return test;
  if (!IsKnownTest(test->text)) {
    Unsupported(absl::StrCat("the test ", test->text));
  }
  const bool argument =
      IsType(JinjaTokenType::kString) || IsType(JinjaTokenType::kInteger) ||
      IsType(JinjaTokenType::kFloat) || IsOperator("[") || IsOperator("{") ||
      (IsType(JinjaTokenType::kName) && !IsName("else") && !IsName("or") &&
       !IsName("and"));
  if (IsOperator("(")) {
    test->arguments = Arguments();
  } else if (argument) {
    if (IsName("is")) Fail("tests cannot be chained with is");
    test->arguments.positional.push_back(Postfix(Primary()));
  }
  test = Done(std::move(test));
  if (!negated) return test;
  return Make(Op::kNot, line, std::move(test), nullptr);
}

}  // namespace espalier::internal
