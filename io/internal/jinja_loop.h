#ifndef ESPALIER_IO_INTERNAL_JINJA_LOOP_H_
#define ESPALIER_IO_INTERNAL_JINJA_LOOP_H_

#include <memory>
#include <vector>

#include "absl/strings/string_view.h"

#include "espalier/io/internal/jinja_runtime.h"

namespace espalier::internal {

// The `loop` of a for block.
struct JinjaLoopObject final : JinjaObject {
  std::vector<JinjaValue> items;
  size_t index = 0;  // of the current item
  std::vector<JinjaValue> last_changed;
  bool was_changed = false;
  std::weak_ptr<JinjaLoopObject> self;

  // loop.name; undefined where there is none.
  JinjaValue Get(absl::string_view name);
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_LOOP_H_
