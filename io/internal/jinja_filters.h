#ifndef ESPALIER_IO_INTERNAL_JINJA_FILTERS_H_
#define ESPALIER_IO_INTERNAL_JINJA_FILTERS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/internal/jinja_runtime.h"

namespace espalier::internal {

using JinjaFilterFn = JinjaValue(JinjaRuntime& runtime, const JinjaValue& value,
                                 const JinjaArguments& arguments);

struct JinjaFilter {
  absl::string_view name;
  JinjaFilterFn* apply;
};

// Of text and single values, and of sequences.
absl::Span<const JinjaFilter> TextFilters();
absl::Span<const JinjaFilter> ListFilters();

// len(value) of Python; fails where there is none.
bool LengthOf(JinjaRuntime& runtime, const JinjaValue& value, int64_t* length);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_FILTERS_H_
