// make_sparse_checkpoint CONFIG.json FOLDER: a checkpoint of the config's true
// size without its data, for trying the tools on.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "espalier/tests/checkpoint/sparse_checkpoint.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s CONFIG.json FOLDER\n", argv[0]);
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string config(std::istreambuf_iterator<char>(file), {});
  const auto written = espalier::test::WriteSparseCheckpoint(config, argv[2]);
  if (!written.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(written.status().message()).c_str());
    return 3;
  }
  std::printf("%lld tensors, %lld files, %lld bytes, headers %lld bytes\n",
              static_cast<long long>(written->num_tensors),
              static_cast<long long>(written->num_files),
              static_cast<long long>(written->total_bytes),
              static_cast<long long>(written->header_bytes));
  return 0;
}
