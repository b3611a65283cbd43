#ifndef ESPALIER_IO_INTERNAL_JINJA_MACHINE_H_
#define ESPALIER_IO_INTERNAL_JINJA_MACHINE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "espalier/io/internal/jinja_ast.h"
#include "espalier/io/internal/jinja_runtime.h"

namespace espalier::internal {

// Variables of one scope, on top of those of its parent.
struct JinjaScope {
  JinjaScope* parent = nullptr;
  bool kept = false;  // a macro refers to it
  std::vector<std::pair<int32_t, JinjaValue>> variables;

  JinjaValue* FindHere(int32_t name);
  void Set(int32_t name, JinjaValue value);
};

// Runs one template once.
class JinjaMachine {
 public:
  JinjaMachine(const JinjaTree& tree, const JinjaLimits& limits,
               const JinjaRenderOptions& options);
  ~JinjaMachine();
  JinjaMachine(const JinjaMachine&) = delete;
  JinjaMachine& operator=(const JinjaMachine&) = delete;

  // Makes a variable known that the template names.
  void SetVariable(absl::string_view name, JinjaValue value);
  // Runs the template; its text, or nothing sensible after a failure.
  JinjaString Run();
  JinjaRuntime& runtime() { return runtime_; }
  int32_t num_generations() const { return num_generations_; }

  // Of macros and caller, by MacroObject.
  JinjaValue CallMacro(const JinjaMacro& macro, JinjaScope* home,
                       const JinjaArguments& arguments);
  void Own(std::shared_ptr<JinjaNamespaceObject> space) {
    namespaces_.push_back(std::move(space));
  }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Enters a scope while it lives.
  class Scope {
   public:
    Scope(JinjaMachine* machine, JinjaScope* parent);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    JinjaMachine* const machine_;
    JinjaScope* const before_;
  };
  // Counts a level of recursion while it lives.
  class Level {
   public:
    explicit Level(JinjaMachine* machine);
    ~Level() { --machine_->depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    JinjaMachine* const machine_;
  };

  // Statements (jinja_machine.cc).
  Flow RunBlock(const JinjaBlock& block);
  Flow RunStmt(const JinjaStmt& stmt);
  Flow RunIf(const JinjaStmt& stmt);
  Flow RunFor(const JinjaStmt& stmt);
  Flow RunItems(const JinjaStmt& stmt, std::vector<JinjaValue> items);
  Flow RunWith(const JinjaStmt& stmt);
  void RunSetBlock(const JinjaStmt& stmt);
  void RunCall(const JinjaStmt& stmt);
  void RunGeneration(const JinjaStmt& stmt);
  // What the block prints, in a scope of its own below `parent`.
  JinjaString Capture(const JinjaBlock& block, JinjaScope* parent);
  void Print(const JinjaString& text);
  void Assign(const JinjaTarget& target, const JinjaValue& value);
  JinjaValue MakeMacro(const JinjaMacro& macro);

  // Expressions (jinja_eval.cc).
  JinjaValue Eval(const JinjaExpr& expr);
  JinjaValue EvalNode(const JinjaExpr& expr);
  JinjaValue Lookup(const JinjaExpr& expr);
  JinjaValue EvalCall(const JinjaExpr& expr, const JinjaValue* caller);
  JinjaValue EvalFilter(const JinjaExpr& expr);
  JinjaValue EvalCompare(const JinjaExpr& expr);
  JinjaValue EvalConcat(const JinjaExpr& expr);
  JinjaValue EvalDict(const JinjaExpr& expr);
  JinjaValue EvalIf(const JinjaExpr& expr);
  JinjaValue EvalEscaped(const JinjaExpr& expr);
  bool EvalArguments(const JinjaCallArguments& arguments, JinjaArguments* out);

  const JinjaTree& tree_;
  JinjaRuntime runtime_;
  std::deque<JinjaScope> scopes_;  // all that were ever entered
  std::vector<JinjaScope*> free_scopes_;
  JinjaScope* scope_ = nullptr;
  std::vector<std::shared_ptr<JinjaNamespaceObject>> namespaces_;
  JinjaString* output_ = nullptr;
  JinjaValue block_text_;  // what a filter chain without a value works on
  JinjaMark place_;        // of what is printed: item and generation
  int32_t num_generations_ = 0;
  int depth_ = 0;
};

// A function that needs the machine: namespace(), macros.
struct JinjaMachineFunction : JinjaFunctionObject {
  explicit JinjaMachineFunction(JinjaMachine* machine) : machine(machine) {}
  JinjaMachine* const machine;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_MACHINE_H_
