#ifndef ESPALIER_IO_JINJA_H_
#define ESPALIER_IO_JINJA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/json.h"

namespace espalier {

// Where a stretch of rendered text comes from.
struct JinjaMark {
  static constexpr int32_t kTemplate = -1;  // the template's own text
  static constexpr int32_t kData = -2;      // a variable's data

  // kTemplate, kData, or the number of the element it was part of, for
  // variables with Origin::kItems.
  int32_t source = kTemplate;
  // The element whose loop printed it, whatever it says; -1: printed outside
  // of loops over such elements.
  int32_t item = -1;
  // The {% generation %} block it was printed in, numbered as they began; -1:
  // in none.
  int32_t generation = -1;

  friend bool operator==(const JinjaMark&, const JinjaMark&) = default;
};

// Text from where the run before it ends to `end`, in bytes.
struct JinjaRun {
  size_t end = 0;
  JinjaMark mark;
};

struct JinjaOutput {
  std::string text;
  std::vector<JinjaRun> runs;  // cover the text; neighbours differ
  int32_t num_generations = 0;
};

// A variable that a template sees.
struct JinjaVariable {
  enum class Origin {
    kTemplate,  // its strings count as the template's own text
    kData,
    kItems,  // an array of data whose elements are told apart
  };

  std::string name;
  const JsonValue* value = nullptr;  // borrowed
  Origin origin = Origin::kData;
  // Members of the elements of kItems whose strings count as the template's,
  // where they are letters and "_" alone: roles, whose names templates build
  // control tokens from.
  std::vector<std::string> template_members;
};

// Bounds on what a template may use. Reaching one is RESOURCE_EXHAUSTED.
struct JinjaLimits {
  int64_t max_template_bytes = int64_t{4} << 20;
  int max_nesting = 200;  // of brackets, operators and blocks, as written
  int max_depth = 500;    // of expressions, blocks and macros, as run
  int64_t max_steps = 50'000'000;
  // Of one text or list, its bookkeeping included, and of all that are made on
  // the way together. Both are asked for before memory is.
  int64_t max_value_bytes = int64_t{128} << 20;
  int64_t max_text_bytes = int64_t{2} << 30;
  int64_t max_output_bytes = int64_t{512} << 20;
};

struct JinjaOptions {
  bool trim_blocks = true;    // a newline behind a block tag is not text
  bool lstrip_blocks = true;  // nor is white space from a line's begin to one
  JinjaLimits limits;
};

struct JinjaRenderOptions {
  // Seconds since 1970 of what strftime_now shows, in UTC. Without it
  // strftime_now fails.
  std::optional<int64_t> now_seconds;
};

// A template of the Jinja language, as chat templates use it: what jinja2
// 3.1.6 gives in transformers' sandbox (trim_blocks, lstrip_blocks,
// loopcontrols, generation blocks, its own tojson), or an error with the line.
// docs/formats/chat.md lists what is known, and the differences; anything else
// is UNIMPLEMENTED by name. Immutable and thread-safe.
class JinjaTemplate {
 public:
  // Fails INVALID_ARGUMENT on broken syntax, UNIMPLEMENTED on what is not
  // known, with "WHERE: line N: " in front.
  static absl::StatusOr<JinjaTemplate> Parse(
      absl::string_view source, const std::string& where,
      const JinjaOptions& options = JinjaOptions());
  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;
  ~JinjaTemplate();

  // Fails like the reference where a template fails: INVALID_ARGUMENT with the
  // line (a missing attribute, wrong types, raise_exception).
  absl::StatusOr<JinjaOutput> Render(
      absl::Span<const JinjaVariable> variables,
      const JinjaRenderOptions& options = JinjaRenderOptions()) const;

  // The template's own text and string literals, one behind another: where a
  // control token has to be spelled if the template is to print it whole.
  const std::string& literal_text() const;

 private:
  struct Program;
  explicit JinjaTemplate(std::unique_ptr<const Program> program);

  std::unique_ptr<const Program> program_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_JINJA_H_
