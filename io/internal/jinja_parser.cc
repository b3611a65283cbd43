#include "espalier/io/internal/jinja_parser.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

using Kind = JinjaStmt::Kind;

JinjaParser::JinjaParser(std::vector<JinjaToken> tokens,
                         const JinjaOptions& options)
    : options_(options), tokens_(std::move(tokens)) {}

absl::StatusOr<JinjaTree> JinjaParser::Parse() {
  std::string end;
  tree_.body = Block({}, &end);
  if (failed()) return status_;
  return std::move(tree_);
}

void JinjaParser::Fail(absl::string_view message) {
  if (failed()) return;
  status_ = absl::InvalidArgumentError(
      absl::StrCat("line ", current().line, ": ", message));
  at_ = tokens_.size() - 1;
}

void JinjaParser::Unsupported(absl::string_view what) {
  if (failed()) return;
  status_ = absl::UnimplementedError(
      absl::StrCat("line ", current().line, ": ", what, " is not supported"));
  at_ = tokens_.size() - 1;
}

void JinjaParser::TooDeep() {
  if (failed()) return;
  status_ = absl::ResourceExhaustedError(
      absl::StrCat("line ", current().line, ": the template nests deeper than ",
                   options_.limits.max_nesting));
  at_ = tokens_.size() - 1;
}

const JinjaToken& JinjaParser::look() const {
  return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_];
}

void JinjaParser::Next() {
  if (at_ + 1 < tokens_.size()) ++at_;
}

bool JinjaParser::IsName(absl::string_view name) const {
  return IsType(JinjaTokenType::kName) && current().text == name;
}

bool JinjaParser::IsOperator(absl::string_view symbol) const {
  return IsType(JinjaTokenType::kOperator) && current().text == symbol;
}

bool JinjaParser::SkipName(absl::string_view name) {
  if (!IsName(name)) return false;
  Next();
  return true;
}

bool JinjaParser::SkipOperator(absl::string_view symbol) {
  if (!IsOperator(symbol)) return false;
  Next();
  return true;
}

void JinjaParser::Expect(absl::string_view symbol) {
  if (failed() || SkipOperator(symbol)) return;
  Fail(absl::StrCat("expected \"", symbol, "\", got ", Describe(current())));
}

std::string JinjaParser::ExpectName() {
  if (!IsType(JinjaTokenType::kName)) {
    Fail(absl::StrCat("expected a name, got ", Describe(current())));
    return "";
  }
  std::string name = current().text;
  Next();
  return name;
}

int32_t JinjaParser::Intern(absl::string_view name) {
  const auto [found, is_new] =
      numbers_.try_emplace(name, static_cast<int32_t>(tree_.names.size()));
  if (is_new) tree_.names.emplace_back(name);
  return found->second;
}

std::string JinjaParser::Describe(const JinjaToken& token) const {
  switch (token.type) {
    case JinjaTokenType::kData:
      return "text";
    case JinjaTokenType::kVariableBegin:
      return "\"{{\"";
    case JinjaTokenType::kVariableEnd:
      return "\"}}\"";
    case JinjaTokenType::kBlockBegin:
      return "\"{%\"";
    case JinjaTokenType::kBlockEnd:
      return "\"%}\"";
    case JinjaTokenType::kEnd:
      return "the end of the template";
    default:
      return Quote(token.text, 60);
  }
}

JinjaBlock JinjaParser::Block(std::initializer_list<absl::string_view> ends,
                              std::string* end) {
  const Nested nested(this);
  JinjaBlock block;
  while (!failed() && !IsType(JinjaTokenType::kEnd)) {
    if (IsType(JinjaTokenType::kData)) {
      auto stmt = std::make_unique<JinjaStmt>();
      stmt->line = current().line;
      stmt->text = JinjaString(current().text, JinjaMark());
      absl::StrAppend(&tree_.literal_text, current().text, "\n");
      block.push_back(std::move(stmt));
      Next();
    } else if (IsType(JinjaTokenType::kVariableBegin)) {
      Next();
      auto stmt = std::make_unique<JinjaStmt>();
      stmt->kind = Kind::kPrint;
      stmt->line = current().line;
      stmt->expr = Printed();
      if (num_markup_ > 0) {
        Unsupported("the filter safe or escape inside an expression");
      }
      if (!failed() && !IsType(JinjaTokenType::kVariableEnd)) {
        Fail(absl::StrCat("expected \"}}\", got ", Describe(current())));
      }
      Next();
      block.push_back(std::move(stmt));
    } else if (IsType(JinjaTokenType::kBlockBegin)) {
      Next();
      for (const absl::string_view name : ends) {
        if (!IsName(name)) continue;
        *end = std::string(name);
        Next();
        return block;
      }
      Statement(&block);
    } else {
      Fail(absl::StrCat("unexpected ", Describe(current())));
    }
  }
  if (!failed() && ends.size() > 0) {
    Fail(absl::StrCat("the template ends before ", *(ends.end() - 1)));
  }
  return block;
}

void JinjaParser::FinishTag() {
  if (num_markup_ > 0) {
    Unsupported("the filter safe or escape outside of {{ }}");
  }
  if (!failed() && !IsType(JinjaTokenType::kBlockEnd)) {
    Fail(absl::StrCat("expected \"%}\", got ", Describe(current())));
  }
  if (!failed()) Next();
}

JinjaBlock JinjaParser::Body(absl::string_view end_tag) {
  SkipOperator(":");
  FinishTag();
  std::string end;
  JinjaBlock block = Block({end_tag}, &end);
  return block;
}

void JinjaParser::Statement(JinjaBlock* block) {
  auto stmt = std::make_unique<JinjaStmt>();
  stmt->line = current().line;
  const std::string tag = ExpectName();
  if (failed()) return;
  if (tag == "if") {
    If(stmt.get());
  } else if (tag == "for") {
    For(stmt.get());
  } else if (tag == "set") {
    Set(stmt.get());
  } else if (tag == "macro") {
    Macro(stmt.get());
  } else if (tag == "call") {
    Call(stmt.get());
  } else if (tag == "with") {
    With(stmt.get());
  } else if (tag == "filter") {
    stmt->kind = Kind::kFilter;
    JinjaExprPtr filters = FilterOf(nullptr);
    while (!failed() && IsOperator("|")) filters = FilterOf(std::move(filters));
    stmt->expr = std::move(filters);
    const int loops = std::exchange(loops_, 0);
    stmt->body = Body("endfilter");
    loops_ = loops;
  } else if (tag == "generation") {
    stmt->kind = Kind::kGeneration;
    const int loops = std::exchange(loops_, 0);
    stmt->body = Body("endgeneration");
    loops_ = loops;
  } else if (tag == "break" || tag == "continue") {
    stmt->kind = tag == "break" ? Kind::kBreak : Kind::kContinue;
    if (loops_ == 0) Fail(absl::StrCat(tag, " outside of a for block"));
  } else if (tag == "print") {
    stmt->kind = Kind::kPrint;
    stmt->expr = Expression();
    if (IsOperator(",")) Unsupported("print of several values");
  } else if (tag == "else" || tag == "elif" || tag.rfind("end", 0) == 0) {
    Fail(absl::StrCat("the tag ", tag, " does not belong here"));
  } else {
    Unsupported(absl::StrCat("the tag ", tag));
  }
  FinishTag();
  block->push_back(std::move(stmt));
}

void JinjaParser::If(JinjaStmt* stmt) {
  stmt->kind = Kind::kIf;
  std::string end = "elif";
  while (!failed() && end == "elif") {
    JinjaExprPtr condition = Tuple(/*with_if=*/false, /*parentheses=*/false);
    SkipOperator(":");
    FinishTag();
    JinjaBlock body = Block({"elif", "else", "endif"}, &end);
    stmt->branches.emplace_back(std::move(condition), std::move(body));
  }
  if (!failed() && end == "else") stmt->else_body = Body("endif");
}

void JinjaParser::For(JinjaStmt* stmt) {
  stmt->kind = Kind::kFor;
  stmt->target = Target(/*with_namespace=*/false, "in");
  if (!failed() && !SkipName("in")) {
    Fail(absl::StrCat("expected \"in\", got ", Describe(current())));
  }
  stmt->expr = Tuple(/*with_if=*/false, /*parentheses=*/false);
  if (!failed() && SkipName("if")) stmt->condition = Expression();
  if (IsName("recursive")) Unsupported("a recursive for block");
  SkipOperator(":");
  FinishTag();
  std::string end;
  ++loops_;
  stmt->body = Block({"else", "endfor"}, &end);
  --loops_;
  if (!failed() && end == "else") stmt->else_body = Body("endfor");
}

void JinjaParser::Set(JinjaStmt* stmt) {
  stmt->target = Target(/*with_namespace=*/true, "");
  if (SkipOperator("=")) {
    stmt->kind = Kind::kSet;
    stmt->expr = Tuple(/*with_if=*/true, /*parentheses=*/false);
    return;
  }
  stmt->kind = Kind::kSetBlock;
  JinjaExprPtr filters;
  while (!failed() && IsOperator("|")) filters = FilterOf(std::move(filters));
  stmt->expr = std::move(filters);
  const int loops = std::exchange(loops_, 0);
  stmt->body = Body("endset");
  loops_ = loops;
}

void JinjaParser::Macro(JinjaStmt* stmt) {
  stmt->kind = Kind::kMacro;
  stmt->macro = std::make_unique<JinjaMacro>();
  stmt->macro->name = ExpectName();
  stmt->target.name = Intern(stmt->macro->name);
  Signature(stmt->macro.get());
  const int loops = std::exchange(loops_, 0);
  const bool outer = std::exchange(caller_seen_, false);
  stmt->macro->body = Body("endmacro");
  stmt->macro->uses_caller = caller_seen_;
  caller_seen_ = outer;
  loops_ = loops;
}

void JinjaParser::Signature(JinjaMacro* macro) {
  Expect("(");
  while (!failed() && !IsOperator(")")) {
    if (!macro->parameters.empty()) Expect(",");
    std::string name = ExpectName();
    if (name == "caller") Unsupported("a parameter named caller");
    macro->parameters.emplace_back(Intern(name), name);
    if (SkipOperator("=")) {
      macro->defaults.push_back(Expression());
    } else if (!macro->defaults.empty()) {
      Fail("a parameter without default follows one with");
    }
  }
  Expect(")");
}

void JinjaParser::Call(JinjaStmt* stmt) {
  stmt->kind = Kind::kCall;
  stmt->macro = std::make_unique<JinjaMacro>();
  stmt->macro->name = "caller";
  if (IsOperator("(")) Signature(stmt->macro.get());
  stmt->expr = Expression();
  if (!failed() && stmt->expr->op != JinjaExpr::Op::kCall) {
    Fail("call needs a call");
  }
  const int loops = std::exchange(loops_, 0);
  stmt->macro->body = Body("endcall");
  loops_ = loops;
}

void JinjaParser::With(JinjaStmt* stmt) {
  stmt->kind = Kind::kWith;
  while (!failed() && !IsType(JinjaTokenType::kBlockEnd)) {
    if (!stmt->with.empty()) Expect(",");
    JinjaTarget target = Target(/*with_namespace=*/false, "");
    Expect("=");
    stmt->with.emplace_back(std::move(target), Expression());
  }
  stmt->body = Body("endwith");
}

JinjaTarget JinjaParser::Target(bool with_namespace, absl::string_view end) {
  JinjaTarget tuple;
  tuple.is_tuple = true;
  tuple.line = current().line;
  while (!failed()) {
    tuple.items.push_back(OneTarget(with_namespace));
    if (!SkipOperator(",")) {
      if (tuple.items.size() > 1) break;
      JinjaTarget only = std::move(tuple.items[0]);
      return only;
    }
    if ((!end.empty() && IsName(end)) || IsOperator("=")) break;
  }
  return tuple;
}

JinjaTarget JinjaParser::OneTarget(bool with_namespace) {
  const Nested nested(this);
  JinjaTarget target;
  target.line = current().line;
  if (SkipOperator("(")) {
    while (!failed() && !IsOperator(")")) {
      target.items.push_back(OneTarget(with_namespace));
      if (!SkipOperator(",")) break;
      target.is_tuple = true;
    }
    Expect(")");
    if (!target.is_tuple && target.items.size() == 1) {
      JinjaTarget only = std::move(target.items[0]);
      return only;
    }
    target.is_tuple = true;
    return target;
  }
  const std::string name = ExpectName();
  for (const absl::string_view taken :
       {"true", "false", "none", "True", "False", "None", "loop", "self",
        "super", "caller"}) {
    if (name == taken) Fail(absl::StrCat("cannot assign to ", name));
  }
  target.name = Intern(name);
  if (with_namespace && SkipOperator(".")) target.member = ExpectName();
  return target;
}

}  // namespace espalier::internal
