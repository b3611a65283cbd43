#ifndef ESPALIER_IO_INTERNAL_JINJA_AST_H_
#define ESPALIER_IO_INTERNAL_JINJA_AST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "espalier/io/internal/jinja_runtime.h"
#include "espalier/io/internal/jinja_value.h"

namespace espalier::internal {

struct JinjaExpr;
using JinjaExprPtr = std::unique_ptr<JinjaExpr>;

// What stands in the parentheses of a call.
struct JinjaCallArguments {
  std::vector<JinjaExprPtr> positional;
  std::vector<std::pair<std::string, JinjaExprPtr>> named;
  JinjaExprPtr rest;        // *rest
  JinjaExprPtr named_rest;  // **named_rest
};

enum class JinjaCompare : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct JinjaExpr {
  enum class Op : uint8_t {
    kConstant,   // constant
    kName,       // name
    kAttribute,  // operands[0].text
    kItem,       // operands[0][operands[1]]
    kSlice,      // operands[0][operands[1]:operands[2]:operands[3]], or null
    kCall,       // operands[0](arguments)
    kFilter,     // operands[0]|text(arguments); null: the text of a block
    kTest,       // operands[0] is text(arguments)
    kNot,
    kNegative,
    kPositive,
    kCalculate,  // operands[0] calculate operands[1]
    kConcat,     // the text of all
    kCompare,    // operands[0] compares[0] operands[1] compares[1] ...
    kAnd,
    kOr,
    kIf,  // operands[0] ? operands[1] : operands[2], which may be null
    kList,
    kTuple,
    kDict,     // keys and values by turns
    kEscaped,  // the HTML escapes of operands[0]
  };

  Op op = Op::kConstant;
  int line = 1;
  int height = 1;  // of the tree below
  int32_t name = -1;
  std::string text;
  JinjaValue constant;
  JinjaOperator calculate = JinjaOperator::kAdd;
  std::vector<JinjaCompare> compares;
  std::vector<JinjaExprPtr> operands;
  JinjaCallArguments arguments;
};

struct JinjaStmt;
using JinjaBlock = std::vector<std::unique_ptr<JinjaStmt>>;

// What a value is given to: a name, a member of a namespace, or several.
struct JinjaTarget {
  int32_t name = -1;
  std::string member;  // not empty: of the namespace `name`
  std::vector<JinjaTarget> items;
  bool is_tuple = false;
  int line = 1;
};

// A macro, or the body of a call block.
struct JinjaMacro {
  std::string name;
  std::vector<std::pair<int32_t, std::string>> parameters;
  std::vector<JinjaExprPtr> defaults;  // of the last parameters
  JinjaBlock body;
  bool uses_caller = false;
};

struct JinjaStmt {
  enum class Kind : uint8_t {
    kText,        // text
    kPrint,       // expr
    kIf,          // branches: the first true one; else_body
    kFor,         // target in expr if condition: body; else_body
    kSet,         // target = expr
    kSetBlock,    // target = body through expr (filters), or null
    kMacro,       // macro, named target.name
    kCall,        // expr is a call, macro its caller
    kFilter,      // body through expr
    kWith,        // targets = values: body
    kGeneration,  // body
    kBreak,
    kContinue,
  };

  Kind kind = Kind::kText;
  int line = 1;
  JinjaString text;
  JinjaExprPtr expr;
  JinjaExprPtr condition;
  JinjaTarget target;
  std::vector<std::pair<JinjaExprPtr, JinjaBlock>> branches;
  std::vector<std::pair<JinjaTarget, JinjaExprPtr>> with;
  JinjaBlock body;
  JinjaBlock else_body;
  std::unique_ptr<JinjaMacro> macro;
};

struct JinjaTree {
  JinjaBlock body;
  std::vector<std::string> names;  // by their numbers
  std::string literal_text;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_AST_H_
