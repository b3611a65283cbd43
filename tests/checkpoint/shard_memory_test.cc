// Sharding moves a model of 357 MB through buffers of a few megabytes.

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

#include "espalier/io/internal/folder_job.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/io/shard.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"

namespace espalier {
namespace {

constexpr char kConfig[] = R"({"model_type":"llama","vocab_size":32768,
    "hidden_size":1024,"num_hidden_layers":4,"num_attention_heads":16,
    "num_key_value_heads":4,"intermediate_size":8192,
    "tie_word_embeddings":false})";

// Puts numbers that tell their place into the holes of a file's data.
void FillHoles(const std::filesystem::path& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  uint64_t header = 0;
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  const uint64_t size = std::filesystem::file_size(path);
  for (uint64_t at = 8 + header; at + 8 <= size; at += 40'008) {
    const uint64_t value = at * 0x9E3779B97F4A7C15u;
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
}

TEST(ShardMemoryTest, StreamsInBoundedMemory) {
  test::TempDir dir;
  const std::string in = dir.Path("in");
  const auto written = test::WriteSparseCheckpoint(kConfig, in);
  ASSERT_TRUE(written.ok()) << written.status();
  ASSERT_GT(written->total_bytes, 350'000'000);
  for (const auto& file : std::filesystem::directory_iterator(in)) {
    if (file.path().extension() == ".safetensors") FillHoles(file.path());
  }
  const int64_t shard = test::PeakBytes([&] {
    ShardOptions options;
    options.mesh = {4, 1, 2, 1};
    options.max_shard_bytes = 50'000'000;
    return ShardCheckpoint(in, dir.Path("out"), options).ok();
  });
  const int64_t unshard = test::PeakBytes([&] {
    return UnshardCheckpoint(dir.Path("out"), dir.Path("back"), {}).ok();
  });
  ASSERT_GT(shard, 0);
  ASSERT_GT(unshard, 0);
#if !defined(ESPALIER_ASAN) && !defined(ESPALIER_TSAN)
  EXPECT_LT(shard, int64_t{64} << 20);
  EXPECT_LT(unshard, int64_t{64} << 20);
#endif
  for (const auto& file : std::filesystem::directory_iterator(in)) {
    const std::string name = file.path().filename().string();
    EXPECT_EQ(internal::HashFile(file.path().string()).value(),
              internal::HashFile(dir.Path("back/" + name)).value())
        << name;
  }
}

}  // namespace
}  // namespace espalier
