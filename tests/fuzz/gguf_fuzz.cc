// Input: a GGUF file.

#include <algorithm>
#include <vector>

#include "espalier/io/gguf_checkpoint.h"
#include "espalier/io/gguf_file.h"
#include "espalier/io/json.h"
#include "espalier/tests/fuzz/fuzz_input.h"

namespace espalier {
namespace {

// Rows that are worth decoding: the file holds their bytes, at 8 bits or less
// an element.
constexpr int64_t kMaxElements = int64_t{1} << 20;

void DecodeTensors(const GgufFile& file) {
  for (const GgufTensor& tensor : file.tensors()) {
    fuzz::Require(file.Find(tensor.name) == &tensor, "names find tensors");
    if (tensor.columns() > kMaxElements) continue;
    const int64_t rows = std::min<int64_t>(tensor.rows(), 2);
    std::vector<float> out(static_cast<size_t>(rows * tensor.columns()));
    (void)file.DecodeRows(tensor, tensor.rows() - rows, rows,
                          absl::MakeSpan(out));
  }
}

void DecodeWeights(const GgufCheckpoint& checkpoint) {
  for (const GgufWeight& weight : checkpoint.weights()) {
    const bool vector = weight.shape.size() < 2;
    const int64_t columns = vector ? 1 : weight.shape.back();
    int64_t rows = 1;
    for (size_t i = 0; i + (vector ? 0 : 1) < weight.shape.size(); ++i) {
      rows *= weight.shape[i];
    }
    if (columns > kMaxElements) continue;
    const int64_t count = std::min<int64_t>(rows, 3);
    std::vector<float> out(static_cast<size_t>(count * columns));
    (void)checkpoint.DecodeRows(weight, rows - count, count,
                                absl::MakeSpan(out));
  }
  fuzz::Require(WriteJson(checkpoint.config()).ok(), "a config can be written");
}

}  // namespace
}  // namespace espalier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const espalier::fuzz::MemoryFile file(espalier::fuzz::Text(data, size));
  const auto opened = espalier::GgufFile::Open(file.path());
  if (!opened.ok()) return 0;
  espalier::DecodeTensors(*opened);
  const auto checkpoint = espalier::GgufCheckpoint::Open(file.path());
  if (checkpoint.ok()) espalier::DecodeWeights(*checkpoint);
  return 0;
}
