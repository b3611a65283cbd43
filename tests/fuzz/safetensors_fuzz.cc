// Input: two bytes, the number of data bytes; then the JSON of a header. The
// input is also opened as a whole file.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "espalier/io/safetensors_format.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/runtime/context.h"
#include "espalier/tests/fuzz/fuzz_input.h"

namespace espalier {
namespace {

Device& Cpu() {
  static const std::unique_ptr<Context> context = [] {
    ContextOptions options;
    options.num_threads = 1;
    return Context::Create(options).value();
  }();
  return context->cpu();
}

void LoadAll(const SafetensorsFile& file) {
  for (const SafetensorsEntry& entry : file.entries()) {
    fuzz::Require(file.Find(entry.name) == &entry, "names find entries");
    const auto tensor = file.Load(Cpu(), entry);
    const int64_t rows = entry.shape.empty() ? 0 : entry.shape[0];
    (void)file.LoadRows(Cpu(), entry, rows / 2, rows - rows / 2);
    (void)file.LoadRows(Cpu(), entry, rows, 1);
    std::vector<uint8_t> bytes(static_cast<size_t>(entry.num_bytes()));
    fuzz::Require(file.ReadBytes(entry, 0, absl::MakeSpan(bytes)).ok(),
                  "bytes of an entry are there");
  }
}

void Open(absl::string_view bytes) {
  const fuzz::MemoryFile file(bytes);
  for (const ReadMode mode : {ReadMode::kRead, ReadMode::kMap}) {
    const auto opened = SafetensorsFile::Open(file.path(), mode);
    if (opened.ok()) LoadAll(*opened);
  }
}

void ParseHeader(absl::string_view json, size_t data_bytes) {
  const auto header =
      ParseSafetensorsHeader(json, static_cast<int64_t>(data_bytes));
  if (!header.ok()) return;
  int64_t at = 0;
  for (const SafetensorsEntry& entry : header->entries) {
    fuzz::Require(entry.begin == at && entry.end >= at,
                  "entries lie one behind another");
    at = entry.end;
    (void)Describe(entry);
  }
  fuzz::Require(at == static_cast<int64_t>(data_bytes), "every byte is owned");
  Open(fuzz::SafetensorsBytes(json, std::string(data_bytes, '\1')));
}

}  // namespace
}  // namespace espalier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes = espalier::fuzz::Text(data, size);
  if (size >= 2) {
    espalier::ParseHeader(bytes.substr(2), data[0] | size_t{data[1]} << 8);
  }
  espalier::Open(bytes);
  return 0;
}
