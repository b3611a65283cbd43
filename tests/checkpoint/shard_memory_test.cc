// Sharding moves a model of 357 MB through buffers of a few megabytes.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
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

// Peak resident bytes of a process that does `work`, -1 where it fails.
int64_t PeakBytes(const std::function<absl::Status()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work().ok() ? 0 : 1);
  int status = 0;
  struct rusage usage = {};
  if (wait4(child, &status, 0, &usage) != child || status != 0) return -1;
  return int64_t{usage.ru_maxrss} << 10;
}

TEST(ShardMemoryTest, StreamsInBoundedMemory) {
  test::TempDir dir;
  const std::string in = dir.Path("in");
  const auto written = test::WriteSparseCheckpoint(kConfig, in);
  ASSERT_TRUE(written.ok()) << written.status();
  ASSERT_GT(written->total_bytes, 350'000'000);
  const int64_t shard = PeakBytes([&] {
    ShardOptions options;
    options.mesh = {4, 1, 2, 1};
    options.max_shard_bytes = 50'000'000;
    return ShardCheckpoint(in, dir.Path("out"), options).status();
  });
  const int64_t unshard = PeakBytes([&] {
    return UnshardCheckpoint(dir.Path("out"), dir.Path("back"), {}).status();
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
