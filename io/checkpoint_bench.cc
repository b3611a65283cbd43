// Loading the tensors of a file by map and by pread, all of them held and every
// byte summed, beside a plain read(2) of the same file into memory of its size,
// summed likewise, in turns; from the page cache, into memory that was used
// before. Best of the rounds; share: of the plain read.
// Decoding and encoding of packed rows.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"

#include "espalier/io/internal/weight_codec.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/io/safetensors_writer.h"
#include "espalier/io/weight_encoder.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

constexpr int64_t kTensors = 64;
constexpr int64_t kTensorBytes = int64_t{4} << 20;

// A file of 256 MB, made once and removed at the end of the process.
class BenchFile {
 public:
  BenchFile() {
    std::string name =
        (std::filesystem::temp_directory_path() / "espalier-bench-XXXXXX")
            .string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    dir_ = name;
    std::vector<TensorSpec> specs;
    specs.reserve(kTensors);
    for (int64_t i = 0; i < kTensors; ++i) {
      specs.push_back({absl::StrCat("t", i),
                       SafetensorsDType::kBF16,
                       {kTensorBytes / 2048, 1024}});
    }
    auto writer = SafetensorsWriter::Create(path(), specs);
    const std::vector<uint8_t> bytes(kTensorBytes, 0x3f);
    for (const TensorSpec& spec : specs) {
      if (!writer.ok() || !writer->Append(spec.name, bytes).ok()) std::abort();
    }
    if (!writer->Finish().ok()) std::abort();
  }
  ~BenchFile() {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  std::string path() const { return dir_ + "/model.safetensors"; }

 private:
  std::string dir_;
};

const std::string& BenchPath() {
  static const BenchFile file;
  static const std::string path = file.path();
  return path;
}

// Every 64-bit word, in independent sums: as fast as memory gives them.
uint64_t SumWords(const void* data, int64_t bytes) {
  const auto* words = static_cast<const uint64_t*>(data);
  std::array<uint64_t, 8> sums = {};
  const int64_t count = bytes / 8;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + static_cast<int>(j)];
  }
  for (; i < count; ++i) sums[0] += words[i];
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

using Seconds = std::chrono::duration<double>;

// What a program without this library would do: read(2) the file by pieces of
// a tensor's size into memory of the same allocator, and use it.
double PlainReadSeconds(const Tensor& buffer) {
  auto* data = static_cast<uint8_t*>(buffer.view().pointer);
  const auto start = std::chrono::steady_clock::now();
  const int file = open(BenchPath().c_str(), O_RDONLY);
  size_t bytes = 0;
  for (ssize_t got = 1; got > 0; bytes += static_cast<size_t>(got)) {
    got = read(file, data + bytes,
               std::min(static_cast<size_t>(kTensorBytes),
                        static_cast<size_t>(buffer.num_bytes()) - bytes));
  }
  close(file);
  benchmark::DoNotOptimize(SumWords(data, static_cast<int64_t>(bytes)));
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

double LoadSeconds(ReadMode mode, Device& device) {
  const auto start = std::chrono::steady_clock::now();
  const auto file = SafetensorsFile::Open(BenchPath(), mode);
  std::vector<Tensor> held;
  for (const SafetensorsEntry& entry : file->entries()) {
    held.push_back(*file->Load(device, entry));
    benchmark::DoNotOptimize(
        SumWords(held.back().view().pointer, entry.num_bytes()));
  }
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

void BM_Load(benchmark::State& state) {
  const auto mode = static_cast<ReadMode>(state.range(0));
  auto context = bench::MakeContext(1);
  const auto file_bytes =
      static_cast<int64_t>(std::filesystem::file_size(BenchPath()));
  const Tensor buffer = Tensor::Empty(context->cpu(), {file_bytes}, kU8);
  double load = LoadSeconds(mode, context->cpu());
  double plain = PlainReadSeconds(buffer);
  for ([[maybe_unused]] auto _ : state) {
    const double seconds = LoadSeconds(mode, context->cpu());
    state.SetIterationTime(seconds);
    load = std::min(load, seconds);
    plain = std::min(plain, PlainReadSeconds(buffer));
  }
  const double size = static_cast<double>(file_bytes) / 1e9;
  state.SetLabel(absl::StrCat(ToString(mode), ", held, all bytes summed"));
  state.counters["GB/s"] = size / load;
  state.counters["read_GB/s"] = size / plain;
  state.counters["share"] = plain / load;
}
BENCHMARK(BM_Load)
    ->ArgName("mode")
    ->Arg(static_cast<int>(ReadMode::kMap))
    ->Arg(static_cast<int>(ReadMode::kRead))
    ->Iterations(9)
    ->UseManualTime();

constexpr int64_t kRows = 256;
constexpr int64_t kColumns = 4096;

std::vector<float> BenchValues() {
  auto context = bench::MakeContext(1);
  const Tensor values =
      bench::RandomTensor(context->cpu(), {kRows, kColumns}, kF32, 1);
  return std::vector<float>(values.data<float>(),
                            values.data<float>() + kRows * kColumns);
}

struct Packed {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

// 0 fp8, 1 int4, 2 mxfp4
Packed Encode(int format, const std::vector<float>& values) {
  Packed packed;
  packed.codes.resize(static_cast<size_t>(kRows * kColumns / (format ? 2 : 1)));
  absl::Status s;
  if (format == 0) {
    packed.scales.resize(kRows / 128 * kColumns / 128);
    s = EncodeFp8Rows(values, kRows, kColumns, absl::MakeSpan(packed.codes),
                      absl::MakeSpan(packed.scales));
  } else if (format == 1) {
    std::vector<uint16_t> scales(kRows * kColumns / 32);
    s = EncodeInt4Rows(values, kRows, kColumns, 32,
                       absl::MakeSpan(packed.codes), absl::MakeSpan(scales));
  } else {
    std::vector<uint8_t> scales(kRows * kColumns / 32);
    s = EncodeMxfp4Rows(values, kRows, kColumns, absl::MakeSpan(packed.codes),
                        absl::MakeSpan(scales));
  }
  if (!s.ok()) std::abort();
  return packed;
}

constexpr const char* kNames[] = {"fp8", "int4", "mxfp4"};

void BM_Encode(benchmark::State& state) {
  const int format = static_cast<int>(state.range(0));
  const std::vector<float> values = BenchValues();
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(Encode(format, values).codes.data());
  }
  state.SetLabel(absl::StrCat(kNames[format], ", f32 bytes read"));
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(values.size()) * 4e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Encode)->ArgName("format")->DenseRange(0, 2)->UseRealTime();

void BM_Decode(benchmark::State& state) {
  const int format = static_cast<int>(state.range(0));
  const Packed packed = Encode(format, BenchValues());
  const std::vector<float> scales(kColumns / 32, 0.01f);
  std::vector<float> row(kColumns);
  for ([[maybe_unused]] auto _ : state) {
    for (int64_t r = 0; r < kRows; ++r) {
      const uint8_t* codes =
          packed.codes.data() + r * kColumns / (format ? 2 : 1);
      if (format == 0) {
        internal::DecodeE4m3Row(codes, scales.data(), kColumns, 128,
                                row.data());
      } else if (format == 1) {
        internal::DecodeIntRow(4, codes, scales.data(), nullptr, nullptr,
                               kColumns, 32, row.data());
      } else {
        internal::DecodeE2m1Row(codes, scales.data(), kColumns, 32, row.data());
      }
      benchmark::DoNotOptimize(row.data());
    }
  }
  state.SetLabel(absl::StrCat(kNames[format], ", f32 bytes written"));
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(kRows * kColumns) * 4e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Decode)->ArgName("format")->DenseRange(0, 2)->UseRealTime();

}  // namespace
}  // namespace espalier
