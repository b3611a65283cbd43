#ifndef ESPALIER_IO_INTERNAL_JINJA_PARSER_H_
#define ESPALIER_IO_INTERNAL_JINJA_PARSER_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/internal/jinja_ast.h"
#include "espalier/io/internal/jinja_lexer.h"

namespace espalier::internal {

// Reads the tokens of a template. After a failure it only runs out of tokens;
// trees may then have holes.
class JinjaParser {
 public:
  JinjaParser(std::vector<JinjaToken> tokens, const JinjaOptions& options);

  // Fails with "line N: " in front.
  absl::StatusOr<JinjaTree> Parse();

 private:
  // Counts nesting while it lives.
  class Nested {
   public:
    explicit Nested(JinjaParser* parser) : parser_(parser) {
      if (++parser_->depth_ > parser_->options_.limits.max_nesting) {
        parser_->TooDeep();
      }
    }
    ~Nested() { --parser_->depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    JinjaParser* const parser_;
  };

  bool failed() const { return !status_.ok(); }
  void Fail(absl::string_view message);
  void Unsupported(absl::string_view what);
  void TooDeep();

  const JinjaToken& current() const { return tokens_[at_]; }
  const JinjaToken& look() const;
  void Next();
  bool IsType(JinjaTokenType type) const { return current().type == type; }
  bool IsName(absl::string_view name) const;
  bool IsOperator(absl::string_view symbol) const;
  bool SkipName(absl::string_view name);
  bool SkipOperator(absl::string_view symbol);
  void Expect(absl::string_view symbol);
  std::string ExpectName();
  int32_t Intern(absl::string_view name);
  std::string Describe(const JinjaToken& token) const;

  // Statements (jinja_parser.cc). A block ends before the first of the tags
  // named, which becomes *end.
  JinjaBlock Block(std::initializer_list<absl::string_view> ends,
                   std::string* end);
  // Behind a tag's head: its body, up to and with the end tag.
  JinjaBlock Body(absl::string_view end_tag);
  void FinishTag();
  void Statement(JinjaBlock* block);
  void If(JinjaStmt* stmt);
  void For(JinjaStmt* stmt);
  void Set(JinjaStmt* stmt);
  void Macro(JinjaStmt* stmt);
  void Call(JinjaStmt* stmt);
  void With(JinjaStmt* stmt);
  void Signature(JinjaMacro* macro);
  JinjaTarget Target(bool with_namespace, absl::string_view end);
  JinjaTarget OneTarget(bool with_namespace);

  // Expressions (jinja_expressions.cc).
  JinjaExprPtr Printed();
  JinjaExprPtr Tuple(bool with_if, bool parentheses);
  JinjaExprPtr Expression(bool with_if = true);
  JinjaExprPtr Or();
  JinjaExprPtr And();
  JinjaExprPtr Not();
  JinjaExprPtr Compare();
  JinjaExprPtr Sum();
  JinjaExprPtr Concat();
  JinjaExprPtr Product();
  JinjaExprPtr Power();
  JinjaExprPtr Unary(bool with_filter);
  JinjaExprPtr Primary();
  JinjaExprPtr ListLiteral();
  JinjaExprPtr DictLiteral();
  JinjaExprPtr Postfix(JinjaExprPtr expr);
  JinjaExprPtr Filters(JinjaExprPtr expr);
  JinjaExprPtr Subscript(JinjaExprPtr object);
  JinjaExprPtr CallOf(JinjaExprPtr callee);
  JinjaExprPtr FilterOf(JinjaExprPtr value);
  JinjaExprPtr TestOf(JinjaExprPtr value);
  JinjaCallArguments Arguments();
  JinjaExprPtr Make(JinjaExpr::Op op, int line);
  JinjaExprPtr Make(JinjaExpr::Op op, int line, JinjaExprPtr left,
                    JinjaExprPtr right);
  // Gives `expr` its height; fails where it is too high.
  JinjaExprPtr Done(JinjaExprPtr expr);

  const JinjaOptions options_;
  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // for blocks around that break and continue may reach
  bool caller_seen_ = false;
  int num_markup_ = 0;  // filters safe and escape that nothing allowed yet
  absl::Status status_;
  JinjaTree tree_;
  absl::flat_hash_map<std::string, int32_t> numbers_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_PARSER_H_
