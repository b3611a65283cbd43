#include "espalier/io/jinja.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/jinja_lexer.h"
#include "espalier/io/internal/jinja_machine.h"
#include "espalier/io/internal/jinja_parser.h"

namespace espalier {

struct JinjaTemplate::Program {
  std::string where;
  JinjaOptions options;
  internal::JinjaTree tree;
};

namespace {

absl::Status AddPlace(const absl::Status& status, const std::string& where) {
  return absl::Status(status.code(),
                      absl::StrCat(where, ": ", status.message()));
}

}  // namespace

JinjaTemplate::JinjaTemplate(std::unique_ptr<const Program> program)
    : program_(std::move(program)) {}
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;
JinjaTemplate::~JinjaTemplate() = default;

absl::StatusOr<JinjaTemplate> JinjaTemplate::Parse(
    absl::string_view source, const std::string& where,
    const JinjaOptions& options) {
  auto tokens = internal::LexJinja(source, options);
  if (!tokens.ok()) return AddPlace(tokens.status(), where);
  auto tree = internal::JinjaParser(*std::move(tokens), options).Parse();
  if (!tree.ok()) return AddPlace(tree.status(), where);
  auto program = std::make_unique<Program>();
  program->where = where;
  program->options = options;
  program->tree = *std::move(tree);
  return JinjaTemplate(std::move(program));
}

absl::StatusOr<JinjaOutput> JinjaTemplate::Render(
    absl::Span<const JinjaVariable> variables,
    const JinjaRenderOptions& options) const {
  internal::JinjaMachine machine(program_->tree, program_->options.limits,
                                 options);
  for (const JinjaVariable& variable : variables) {
    machine.SetVariable(variable.name, internal::ToJinja(variable));
  }
  const internal::JinjaString text = machine.Run();
  if (machine.runtime().failed()) {
    return AddPlace(machine.runtime().status(), program_->where);
  }
  JinjaOutput output;
  output.text = text.bytes();
  output.runs.assign(text.runs().begin(), text.runs().end());
  output.num_generations = machine.num_generations();
  return output;
}

const std::string& JinjaTemplate::literal_text() const {
  return program_->tree.literal_text;
}

}  // namespace espalier
