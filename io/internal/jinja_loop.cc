#include "espalier/io/internal/jinja_loop.h"

#include <algorithm>
#include <utility>

namespace espalier::internal {

namespace {

// loop.cycle and loop.changed.
struct LoopMethod final : JinjaFunctionObject {
  std::weak_ptr<JinjaLoopObject> loop;
  bool cycle = false;

  JinjaValue Call(JinjaRuntime& runtime,
                  const JinjaArguments& arguments) override {
    const auto state = loop.lock();
    if (state == nullptr || !arguments.named.empty()) {
      return runtime.Fail("loop.", cycle ? "cycle" : "changed",
                          " is called wrongly");
    }
    const std::vector<JinjaValue>& values = arguments.positional;
    if (cycle) {
      if (values.empty()) return runtime.Fail("loop.cycle lacks items");
      return values[state->index % values.size()];
    }
    bool same =
        state->was_changed && state->last_changed.size() == values.size();
    for (size_t i = 0; same && i < values.size(); ++i) {
      same = AreEqual(runtime, values[i], state->last_changed[i]);
    }
    if (same) return JinjaValue::Bool(false);
    for (const JinjaValue& value : values) {
      state->depth = std::max(state->depth, value.depth() + 1);
    }
    state->last_changed = values;
    state->was_changed = true;
    return JinjaValue::Bool(true);
  }
};

}  // namespace

JinjaValue JinjaLoopObject::Get(absl::string_view name) {
  const int64_t size = static_cast<int64_t>(items.size());
  const int64_t at = static_cast<int64_t>(index);
  if (name == "index") return JinjaValue::Int(at + 1);
  if (name == "index0") return JinjaValue::Int(at);
  if (name == "revindex") return JinjaValue::Int(size - at);
  if (name == "revindex0") return JinjaValue::Int(size - at - 1);
  if (name == "first") return JinjaValue::Bool(at == 0);
  if (name == "last") return JinjaValue::Bool(at + 1 == size);
  if (name == "length") return JinjaValue::Int(size);
  if (name == "depth") return JinjaValue::Int(1);  // no recursive loops
  if (name == "depth0") return JinjaValue::Int(0);
  if (name == "previtem") {
    return at == 0 ? JinjaValue::Undefined("there is no previous item")
                   : items[index - 1];
  }
  if (name == "nextitem") {
    return at + 1 == size ? JinjaValue::Undefined("there is no next item")
                          : items[index + 1];
  }
  if (name == "cycle" || name == "changed") {
    auto method = std::make_shared<LoopMethod>();
    method->loop = self;
    method->cycle = name == "cycle";
    return JinjaValue::Of(JinjaKind::kFunction, std::move(method));
  }
  return JinjaValue();
}

}  // namespace espalier::internal
