#include "espalier/io/internal/jinja_machine.h"

#include <algorithm>
#include <utility>

#include "espalier/io/internal/jinja_loop.h"

namespace espalier::internal {

namespace {

struct MacroObject final : JinjaMachineFunction {
  MacroObject(JinjaMachine* machine, const JinjaMacro& macro, JinjaScope* home)
      : JinjaMachineFunction(machine), macro(macro), home(home) {}

  JinjaValue Call(JinjaRuntime& /*runtime*/,
                  const JinjaArguments& arguments) override {
    return machine->CallMacro(macro, home, arguments);
  }

  const JinjaMacro& macro;
  JinjaScope* const home;  // where it was defined
};

// Names that are no variables have a number below every name's.
constexpr int32_t kNoName = -1;

int32_t NumberOf(const JinjaTree& tree, absl::string_view name) {
  for (size_t i = 0; i < tree.names.size(); ++i) {
    if (tree.names[i] == name) return static_cast<int32_t>(i);
  }
  return kNoName;
}

}  // namespace

JinjaValue* JinjaScope::FindHere(int32_t name) {
  for (auto& [number, value] : variables) {
    if (number == name) return &value;
  }
  return nullptr;
}

void JinjaScope::Set(int32_t name, JinjaValue value) {
  if (JinjaValue* found = FindHere(name)) {
    *found = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

JinjaMachine::JinjaMachine(const JinjaTree& tree, const JinjaLimits& limits,
                           const JinjaRenderOptions& options)
    : tree_(tree), runtime_(limits, options) {
  scope_ = &scopes_.emplace_back();
}

JinjaMachine::~JinjaMachine() {
  // Namespaces may refer to each other in circles.
  for (const auto& space : namespaces_) {
    const auto members = std::exchange(space->members, {});
  }
}

void JinjaMachine::SetVariable(absl::string_view name, JinjaValue value) {
  const int32_t number = NumberOf(tree_, name);
  if (number != kNoName) scopes_.front().Set(number, std::move(value));
}

JinjaMachine::Scope::Scope(JinjaMachine* machine, JinjaScope* parent)
    : machine_(machine), before_(machine->scope_) {
  JinjaScope* scope = nullptr;
  if (machine_->free_scopes_.empty()) {
    scope = &machine_->scopes_.emplace_back();
  } else {
    scope = machine_->free_scopes_.back();
    machine_->free_scopes_.pop_back();
  }
  scope->parent = parent;
  machine_->scope_ = scope;
}

JinjaMachine::Scope::~Scope() {
  JinjaScope* scope = machine_->scope_;
  machine_->scope_ = before_;
  if (scope->kept) return;
  scope->variables.clear();
  machine_->free_scopes_.push_back(scope);
}

JinjaMachine::Level::Level(JinjaMachine* machine) : machine_(machine) {
  if (++machine_->depth_ > machine_->runtime_.limits().max_depth) {
    machine_->runtime_.TooDeep();
  }
}

JinjaString JinjaMachine::Run() {
  JinjaString output;
  output_ = &output;
  RunBlock(tree_.body);
  output_ = nullptr;
  return output;
}

void JinjaMachine::Print(const JinjaString& text) {
  if (!runtime_.Make("print", text.cost())) return;
  if (output_->size() + text.size() >
      static_cast<size_t>(runtime_.limits().max_output_bytes)) {
    runtime_.TooLong();
    return;
  }
  output_->Print(text, place_);
}

JinjaMachine::Flow JinjaMachine::RunBlock(const JinjaBlock& block) {
  const Level level(this);
  for (const auto& stmt : block) {
    if (runtime_.failed()) break;
    const Flow flow = RunStmt(*stmt);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

JinjaMachine::Flow JinjaMachine::RunStmt(const JinjaStmt& stmt) {
  runtime_.line = stmt.line;
  if (!runtime_.Spend()) return Flow::kNext;
  switch (stmt.kind) {
    case JinjaStmt::Kind::kText:
      Print(stmt.text);
      break;
    case JinjaStmt::Kind::kPrint: {
      const JinjaValue value = Eval(*stmt.expr);
      if (value.is_string()) {
        Print(value.text());
      } else if (!runtime_.failed()) {
        Print(ToStr(runtime_, value));
      }
      break;
    }
    case JinjaStmt::Kind::kIf:
      return RunIf(stmt);
    case JinjaStmt::Kind::kFor:
      return RunFor(stmt);
    case JinjaStmt::Kind::kSet:
      Assign(stmt.target, Eval(*stmt.expr));
      break;
    case JinjaStmt::Kind::kSetBlock:
      RunSetBlock(stmt);
      break;
    case JinjaStmt::Kind::kMacro:
      scope_->Set(stmt.target.name, MakeMacro(*stmt.macro));
      break;
    case JinjaStmt::Kind::kCall:
      RunCall(stmt);
      break;
    case JinjaStmt::Kind::kFilter: {
      block_text_ = JinjaValue::String(Capture(stmt.body, scope_));
      const JinjaValue filtered = Eval(*stmt.expr);
      if (!runtime_.failed()) Print(ToStr(runtime_, filtered));
      break;
    }
    case JinjaStmt::Kind::kWith:
      return RunWith(stmt);
    case JinjaStmt::Kind::kGeneration:
      RunGeneration(stmt);
      break;
    case JinjaStmt::Kind::kBreak:
      return Flow::kBreak;
    case JinjaStmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

JinjaMachine::Flow JinjaMachine::RunIf(const JinjaStmt& stmt) {
  for (const auto& [condition, body] : stmt.branches) {
    const bool holds = IsTrue(Eval(*condition));
    if (runtime_.failed()) return Flow::kNext;
    if (holds) return RunBlock(body);
  }
  return RunBlock(stmt.else_body);
}

JinjaMachine::Flow JinjaMachine::RunFor(const JinjaStmt& stmt) {
  std::vector<JinjaValue> items = Iterate(runtime_, Eval(*stmt.expr));
  if (stmt.condition != nullptr) {
    std::vector<JinjaValue> chosen;
    for (JinjaValue& item : items) {
      const Scope scope(this, scope_);
      Assign(stmt.target, item);
      const bool holds = IsTrue(Eval(*stmt.condition));
      if (runtime_.failed()) return Flow::kNext;
      if (holds) chosen.push_back(std::move(item));
    }
    items = std::move(chosen);
  }
  if (runtime_.failed()) return Flow::kNext;
  return RunItems(stmt, std::move(items));
}

// break and continue end here: the flow goes on behind the loop. What a loop
// over elements prints belongs to the element.
JinjaMachine::Flow JinjaMachine::RunItems(const JinjaStmt& stmt,
                                          std::vector<JinjaValue> items) {
  if (items.empty()) {
    const Scope scope(this, scope_);
    return RunBlock(stmt.else_body);
  }
  const int32_t loop_name = NumberOf(tree_, "loop");
  auto loop = std::make_shared<JinjaLoopObject>();
  loop->self = loop;
  for (const JinjaValue& item : items) {
    loop->depth = std::max(loop->depth, item.depth() + 1);
  }
  loop->items = std::move(items);
  const int32_t item_around = place_.item;
  for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
    const JinjaValue item = loop->items[loop->index];
    const Scope scope(this, scope_);
    if (item.is(JinjaKind::kDict)) {
      const int32_t number = item.object<JinjaDictObject>().item;
      if (number >= 0) place_.item = number;
    }
    scope_->Set(loop_name, JinjaValue::Of(JinjaKind::kLoop, loop));
    Assign(stmt.target, item);
    const Flow flow = RunBlock(stmt.body);
    place_.item = item_around;
    if (runtime_.failed() || flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

JinjaMachine::Flow JinjaMachine::RunWith(const JinjaStmt& stmt) {
  std::vector<JinjaValue> values;
  for (const auto& [target, expr] : stmt.with) values.push_back(Eval(*expr));
  const Scope scope(this, scope_);
  for (size_t i = 0; i < values.size(); ++i) {
    Assign(stmt.with[i].first, values[i]);
  }
  return RunBlock(stmt.body);
}

void JinjaMachine::RunSetBlock(const JinjaStmt& stmt) {
  JinjaValue value = JinjaValue::String(Capture(stmt.body, scope_));
  if (stmt.expr != nullptr) {
    block_text_ = value;
    value = Eval(*stmt.expr);
  }
  Assign(stmt.target, value);
}

void JinjaMachine::RunCall(const JinjaStmt& stmt) {
  const JinjaValue caller = MakeMacro(*stmt.macro);
  const JinjaValue value = EvalCall(*stmt.expr, &caller);
  if (!runtime_.failed()) Print(ToStr(runtime_, value));
}

void JinjaMachine::RunGeneration(const JinjaStmt& stmt) {
  const int32_t around = place_.generation;
  if (around >= 0) {
    runtime_.Unsupported("a generation block inside another");
    return;
  }
  place_.generation = num_generations_++;
  {
    const Scope scope(this, scope_);
    RunBlock(stmt.body);
  }
  place_.generation = around;
}

JinjaString JinjaMachine::Capture(const JinjaBlock& block, JinjaScope* parent) {
  JinjaString text;
  JinjaString* const around = std::exchange(output_, &text);
  {
    const Scope scope(this, parent);
    RunBlock(block);
  }
  output_ = around;
  return text;
}

void JinjaMachine::Assign(const JinjaTarget& target, const JinjaValue& value) {
  if (runtime_.failed()) return;
  if (target.is_tuple) {
    const std::vector<JinjaValue> items = Iterate(runtime_, value);
    if (runtime_.failed()) return;
    if (items.size() != target.items.size()) {
      runtime_.Fail("cannot unpack ", items.size(), " values into ",
                    target.items.size());
      return;
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(target.items[i], items[i]);
    return;
  }
  if (target.member.empty()) {
    scope_->Set(target.name, value);
    return;
  }
  JinjaExpr name;
  name.op = JinjaExpr::Op::kName;
  name.name = target.name;
  name.text = tree_.names[static_cast<size_t>(target.name)];
  const JinjaValue space = Lookup(name);
  if (!space.is(JinjaKind::kNamespace)) {
    runtime_.Fail(name.text, " is no namespace: its members cannot be set");
    return;
  }
  if (target.member[0] == '_') {
    runtime_.Fail("a namespace has no members that begin with \"_\"");
    return;
  }
  space.object<JinjaNamespaceObject>().members[target.member] = value;
}

JinjaValue JinjaMachine::MakeMacro(const JinjaMacro& macro) {
  if (!runtime_.MakeTexts("macro", 1)) return {};
  for (JinjaScope* scope = scope_; scope != nullptr && !scope->kept;
       scope = scope->parent) {
    scope->kept = true;
  }
  return JinjaValue::Of(JinjaKind::kFunction,
                        std::make_shared<MacroObject>(this, macro, scope_));
}

JinjaValue JinjaMachine::CallMacro(const JinjaMacro& macro, JinjaScope* home,
                                   const JinjaArguments& arguments) {
  const Level level(this);
  if (runtime_.failed()) return {};
  const size_t count = macro.parameters.size();
  if (arguments.positional.size() > count) {
    return runtime_.Fail("the macro ", macro.name, " takes at most ", count,
                         " arguments");
  }
  const int line = runtime_.line;
  const Scope scope(this, home);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    scope_->Set(macro.parameters[i].first, arguments.positional[i]);
  }
  for (const auto& [name, value] : arguments.named) {
    if (name == "caller" && macro.uses_caller) {
      scope_->Set(NumberOf(tree_, "caller"), value);
      continue;
    }
    size_t i = arguments.positional.size();
    while (i < count && macro.parameters[i].second != name) ++i;
    if (i == count) {
      return runtime_.Fail("the macro ", macro.name, " has no argument ", name);
    }
    scope_->Set(macro.parameters[i].first, value);
  }
  if (macro.uses_caller &&
      scope_->FindHere(NumberOf(tree_, "caller")) == nullptr) {
    scope_->Set(NumberOf(tree_, "caller"),
                JinjaValue::Undefined("the macro has no caller"));
  }
  for (size_t i = 0; i < count; ++i) {
    const auto& [number, name] = macro.parameters[i];
    if (scope_->FindHere(number) != nullptr) continue;
    const size_t first_default = count - macro.defaults.size();
    scope_->Set(number, i < first_default
                            ? JinjaValue::Undefined(absl::StrCat(
                                  "the parameter ", name, " was not given"))
                            : Eval(*macro.defaults[i - first_default]));
  }
  JinjaString text;
  JinjaString* const around = std::exchange(output_, &text);
  RunBlock(macro.body);
  output_ = around;
  runtime_.line = line;
  return JinjaValue::String(std::move(text));
}

}  // namespace espalier::internal
