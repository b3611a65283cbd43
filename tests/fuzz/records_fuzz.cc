// Input: a byte that chooses the format, then a data file.

#include <algorithm>
#include <string>

#include "espalier/io/example.h"
#include "espalier/io/record_file.h"
#include "espalier/tests/fuzz/fuzz_input.h"

namespace espalier {
namespace {

void ReadAll(absl::string_view bytes, const RecordFileOptions& options,
             const ExampleFields& fields) {
  const fuzz::MemoryFile file(bytes);
  const auto records = RecordFile::Open(file.path(), options);
  if (!records.ok()) return;
  const RecordFile& opened = **records;
  const int64_t size = opened.size();
  // A record is read by passing over up to 15 before it.
  const int64_t step = std::max<int64_t>(1, size / 200);
  int64_t line = 0;
  for (int64_t i = 0; i < size; i += step) {
    const auto record = opened.Read(i);
    if (!record.ok()) continue;
    fuzz::Require(record->line >= line, "lines ascend");
    line = record->line;
    if (!opened.is_json()) continue;
    const auto example = ParseExample(record->bytes, fields, "record");
    if (example.ok() && example->kind == Example::Kind::kChat) {
      fuzz::Require(example->messages.AsArray() != nullptr,
                    "messages are an array");
    }
  }
}

}  // namespace
}  // namespace espalier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  using espalier::RecordFormat;
  using espalier::TextBoundary;
  espalier::RecordFileOptions options;
  options.format = static_cast<RecordFormat>(data[0] & 3);
  options.boundary = static_cast<TextBoundary>((data[0] >> 2 & 3) % 3);
  options.separator = "--";
  if ((data[0] & 16) != 0) options.max_record_bytes = 40;
  espalier::ExampleFields fields;
  if ((data[0] & 32) != 0) fields = {"question", "answer"};
  espalier::ReadAll(espalier::fuzz::Text(data + 1, size - 1), options, fields);
  return 0;
}
