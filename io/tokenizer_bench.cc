#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "benchmark/benchmark.h"

#include "espalier/io/tokenizer.h"

namespace espalier {
namespace {

// Paths of an environment variable, with colons between them.
std::vector<std::string> PathsOf(const char* variable) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before there is any other thread
  const char* value = std::getenv(variable);
  if (value == nullptr) return {};
  return absl::StrSplit(value, ':', absl::SkipEmpty());
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// "file" or "file@family".
absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& name) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(name, absl::MaxSplits('@', 1));
  return LoadTokenizer(parts.first, parts.second);
}

// Texts of one call each: the whole file, or its lines.
void Encode(benchmark::State& state, const std::string& tokenizer_path,
            const std::string& text_path, bool by_line) {
  const auto tokenizer = Load(tokenizer_path);
  if (!tokenizer.ok()) {
    state.SkipWithError(std::string(tokenizer.status().message()).c_str());
    return;
  }
  const std::string text = ReadText(text_path);
  std::vector<absl::string_view> texts = {text};
  if (by_line) texts = absl::StrSplit(text, '\n', absl::SkipEmpty());
  size_t num_ids = 0;
  for ([[maybe_unused]] auto _ : state) {
    num_ids = 0;
    for (const absl::string_view one : texts) {
      const auto ids = (*tokenizer)->Encode(one);
      if (!ids.ok()) {
        state.SkipWithError(std::string(ids.status().message()).c_str());
        return;
      }
      num_ids += ids->size();
    }
  }
  state.counters["ids"] = static_cast<double>(num_ids);
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) *
                          state.iterations());
}

void BM_Encode(benchmark::State& state, const std::string& tokenizer_path,
               const std::string& text_path) {
  Encode(state, tokenizer_path, text_path, /*by_line=*/false);
}

void BM_EncodeLines(benchmark::State& state, const std::string& tokenizer_path,
                    const std::string& text_path) {
  Encode(state, tokenizer_path, text_path, /*by_line=*/true);
}

void BM_Decode(benchmark::State& state, const std::string& tokenizer_path,
               const std::string& text_path) {
  const auto tokenizer = Load(tokenizer_path);
  if (!tokenizer.ok()) {
    state.SkipWithError(std::string(tokenizer.status().message()).c_str());
    return;
  }
  const std::string text = ReadText(text_path);
  const auto ids = (*tokenizer)->Encode(text);
  if (!ids.ok()) {
    state.SkipWithError(std::string(ids.status().message()).c_str());
    return;
  }
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize((*tokenizer)->Decode(*ids));
  }
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) *
                          state.iterations());
}

void BM_Load(benchmark::State& state, const std::string& path) {
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(Load(path).ok());
  }
}

void BM_NoData(benchmark::State& state) {
  state.SkipWithError(
      "no data: ESPALIER_TOKENIZERS and ESPALIER_TEXTS name it, as "
      "tests/oracle/tokenizer_speed.py does");
}

// ESPALIER_TOKENIZERS names tokenizer files and ESPALIER_TEXTS text files;
// tests/oracle/tokenizer_speed.py sets both and measures the reference
// libraries beside.
const int kRegistered = [] {
  if (PathsOf("ESPALIER_TOKENIZERS").empty() ||
      PathsOf("ESPALIER_TEXTS").empty()) {
    benchmark::RegisterBenchmark("encode", &BM_NoData);
  }
  for (const std::string& tokenizer : PathsOf("ESPALIER_TOKENIZERS")) {
    const std::string name = NameOf(tokenizer);
    for (const std::string& text : PathsOf("ESPALIER_TEXTS")) {
      const std::string suffix = absl::StrCat("/", name, "/", NameOf(text));
      for (const auto& [label, function] :
           {std::pair("encode", &BM_Encode),
            std::pair("encode_lines", &BM_EncodeLines),
            std::pair("decode", &BM_Decode)}) {
        benchmark::RegisterBenchmark(
            absl::StrCat(label, suffix).c_str(),
            [function = function, tokenizer, text](benchmark::State& state) {
              function(state, tokenizer, text);
            })
            ->Unit(benchmark::kMillisecond);
      }
    }
    benchmark::RegisterBenchmark(
        absl::StrCat("load/", name).c_str(),
        [tokenizer](benchmark::State& state) { BM_Load(state, tokenizer); })
        ->Unit(benchmark::kMillisecond);
  }
  return 0;
}();

}  // namespace
}  // namespace espalier
