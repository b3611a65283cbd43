// Kimi-K3 in its true size, 1.45 TiB of holes: what a person asks of a folder
// on a small machine.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/inspect.h"
#include "espalier/io/internal/folder_job.h"
#include "espalier/io/internal/shard_layout.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/io/shard.h"
#include "espalier/io/verify.h"
#include "espalier/runtime/context.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"

namespace espalier {
namespace {

constexpr int64_t kExpertBytes = 17'547'264;

class K3SizeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new test::TempDir();
    std::ifstream file(ESPALIER_SOURCE_DIR
                       "/tests/fixtures/configs/kimi_k3.json");
    const std::string config(std::istreambuf_iterator<char>(file), {});
    const auto written = test::WriteSparseCheckpoint(config, dir_->path());
    status_ = new absl::Status(written.status());
  }
  static void TearDownTestSuite() {
    delete dir_;
    delete status_;
    dir_ = nullptr;
    status_ = nullptr;
  }
  void SetUp() override {
    if (absl::IsUnavailable(*status_)) GTEST_SKIP() << *status_;
    ASSERT_EQ(*status_, absl::OkStatus());
  }

  // NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a suite's
  static test::TempDir* dir_;
  static absl::Status* status_;
};
test::TempDir* K3SizeTest::dir_ = nullptr;
absl::Status* K3SizeTest::status_ = nullptr;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

// Instrumented builds keep shadow memory of their own.
int64_t MemoryLimit() {
#if defined(ESPALIER_ASAN) || defined(ESPALIER_TSAN)
  return int64_t{4} << 30;
#else
  return int64_t{256} << 20;
#endif
}

TEST_F(K3SizeTest, InspectReadsHeadersOnly) {
  const int64_t peak = test::PeakBytes([] {
    const auto report = InspectCheckpoint(dir_->path());
    return report.ok() && report->family_known &&
           report->num_tensors == 497'220 && report->num_files == 96 &&
           report->other_tensors == 0 &&
           report->total_bytes == 1'560'860'324'864 &&
           report->active_parameters / 10'000'000 == 10'418;
  });
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, MemoryLimit());
}

TEST_F(K3SizeTest, VerifyMatchesEveryName) {
  const int64_t peak = test::PeakBytes([] {
    const auto report = VerifyCheckpoint(dir_->path(), {});
    return report.ok() && report->ok() && report->num_matched == 497'220 &&
           report->notes.empty();
  });
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, MemoryLimit());
}

// The plan of every piece is made before space is found to be short.
TEST_F(K3SizeTest, ShardRefusesAFullDiskInLittleMemory) {
  const test::TempDir beside;
  const std::string out = beside.Path("out");
  const int64_t peak = test::PeakBytes([&] {
    ShardOptions options;
    options.mesh = {8, 64, 8, 1};
    const auto report = ShardCheckpoint(dir_->path(), out, options);
    return absl::IsResourceExhausted(report.status());
  });
  if (peak < 0 && access(out.c_str(), F_OK) == 0) {
    GTEST_SKIP() << "a disk with room for 1.45 TiB";
  }
  EXPECT_GT(peak, 0);
#if !defined(ESPALIER_ASAN) && !defined(ESPALIER_TSAN)
  EXPECT_LT(peak, int64_t{256} << 20);
#endif
  EXPECT_NE(access((out + ".partial").c_str(), F_OK), 0);
}

TEST_F(K3SizeTest, ShardAndUnshardPlanInBoundedMemory) {
  const int64_t shard = test::PeakBytes([&] {
    ShardOptions options;
    options.mesh = {8, 64, 8, 1};
    options.dry_run = true;
    const auto report = ShardCheckpoint(dir_->path(), "out", options);
    return report.ok() && report->num_tensors == 497'220;
  });
  EXPECT_GT(shard, 0);
  EXPECT_LT(shard, MemoryLimit());
  // The folder that shard would write for one rank: the same files.
  const test::TempDir sharded;
  const auto catalog = TensorCatalog::Open(dir_->path());
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  std::filesystem::create_directory(sharded.Path(internal::kOriginalDir));
  internal::ShardLayout layout;
  for (const TensorCatalog::File& file : catalog->files()) {
    const std::string path = catalog->PathOf(file);
    const std::string hash =
        internal::HashFile(path, file.data_start).value_or("");
    layout.sources.push_back(
        {file.name, file.file_bytes, file.data_start, hash});
    auto& written = layout.files.emplace_back();
    written.name = file.name;
    written.group.pp = 0;
    written.num_tensors = file.count;
    written.data_bytes = file.file_bytes - file.data_start;
    written.hashes = {hash, hash};
    std::filesystem::create_hard_link(path, sharded.Path(file.name));
    std::string header(static_cast<size_t>(file.data_start), '\0');
    std::ifstream(path, std::ios::binary)
        .read(header.data(), static_cast<std::streamsize>(header.size()));
    sharded.Write(
        absl::StrCat(internal::kOriginalDir, "/", file.name, ".header"),
        header);
  }
  sharded.Write("config.json", test::ReadFile(dir_->Path("config.json")));
  sharded.Write(internal::kShardsName, internal::WriteLayout(layout).value());
  const int64_t unshard = test::PeakBytes([&] {
    ShardOptions options;
    options.dry_run = true;
    const auto report = UnshardCheckpoint(sharded.path(), "out", options);
    if (!report.ok())
      std::fprintf(stderr, "%s\n", report.status().ToString().c_str());
    return report.ok() && report->num_tensors == 497'220 &&
           report->total_bytes == 1'560'860'324'864;
  });
  EXPECT_GT(unshard, 0);
  EXPECT_LT(unshard, MemoryLimit());
  std::printf("shard: peak %ld MB, unshard: peak %ld MB\n",
              static_cast<long>(shard >> 20), static_cast<long>(unshard >> 20));
}

// Pages of [begin, end) of a file that are in memory.
int64_t ResidentPages(const SafetensorsFile& file, int64_t begin, int64_t end) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t start = begin / page * page;
  const int handle = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
  void* map = mmap(nullptr, static_cast<size_t>(end - start), PROT_READ,
                   MAP_SHARED, handle, start);
  close(handle);
  if (map == MAP_FAILED) return -1;
  std::vector<unsigned char> pages(
      static_cast<size_t>((end - start + page - 1) / page));
  const int failed =
      mincore(map, static_cast<size_t>(end - start), pages.data());
  munmap(map, static_cast<size_t>(end - start));
  if (failed != 0) return -1;
  return std::accumulate(
      pages.begin(), pages.end(), int64_t{0},
      [](int64_t sum, unsigned char p) { return sum + (p & 1); });
}

// Bytes of the file that are mapped into this process and were touched.
int64_t TouchedBytes(const std::string& path) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  int64_t bytes = 0;
  while (std::getline(smaps, line)) {
    const bool range = line.find('-') < line.find(' ');
    if (range) inside = line.find(path) != std::string::npos;
    if (inside && line.rfind("Rss:", 0) == 0) {
      bytes += std::stoll(line.substr(4)) << 10;
    }
  }
  return bytes;
}

// How much the kernel reads around a fault.
int64_t ReadAheadBytes(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return 0;
  std::ifstream file(absl::StrCat("/sys/class/bdi/", major(status.st_dev), ":",
                                  minor(status.st_dev), "/read_ahead_kb"));
  int64_t kib = 16'384;
  file >> kib;
  return kib << 10;
}

TEST_F(K3SizeTest, AnExpertTouchesItsOwnPagesOnly) {
  auto reader = CheckpointReader::Open(dir_->path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  const std::unique_ptr<Context> context = test::MakeContext();
  const std::string stem =
      "language_model.model.layers.57.block_sparse_moe.experts.301.";
  const SafetensorsFile* file = nullptr;
  int64_t begin = -1;
  int64_t end = -1;
  int64_t bytes = 0;
  for (const char* name :
       {"w1.weight_packed", "w1.weight_scale", "w2.weight_packed",
        "w2.weight_scale", "w3.weight_packed", "w3.weight_scale"}) {
    const auto entry = reader->Find(stem + name, &file);
    ASSERT_TRUE(entry.has_value());
    begin = begin < 0 ? entry->begin : begin;
    end = entry->end;
    bytes += entry->num_bytes();
  }
  ASSERT_EQ(end - begin, kExpertBytes);  // back to back
  ASSERT_EQ(bytes, kExpertBytes);
  const int64_t file_bytes = file->file_bytes();
  const int64_t before = ResidentPages(*file, 0, file_bytes);
  const auto tensor = reader->Take(context->cpu(), stem + "w3.weight_packed");
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  const uint8_t* codes = static_cast<const uint8_t*>(tensor->view().pointer);
  int64_t sum = 0;
  for (int64_t i = 0; i < tensor->num_bytes(); ++i) sum += codes[i];
  EXPECT_EQ(sum, 0);
  // The kernel maps 16 pages around a fault, and reads ahead into its cache.
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t touched = TouchedBytes(file->path());
  EXPECT_GE(touched, tensor->num_bytes());
  EXPECT_LE(touched, tensor->num_bytes() + int64_t{32} * page);
  const int64_t cached = ResidentPages(*file, 0, file_bytes) - before;
  EXPECT_LE(cached * page,
            tensor->num_bytes() + 4 * ReadAheadBytes(file->path()));
}

}  // namespace
}  // namespace espalier
