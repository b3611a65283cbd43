#ifndef ESPALIER_TESTS_SUPPORT_FOLDER_FILES_H_
#define ESPALIER_TESTS_SUPPORT_FOLDER_FILES_H_

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace espalier::test {

// Names in a folder, ascending; those of folders and hidden files, too.
inline std::vector<std::string> NamesIn(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(dir)) {
    names.push_back(item.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Every file of a folder, at any depth, by its path in it.
inline std::map<std::string, std::string> Contents(const std::string& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().lexically_relative(dir).string()] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

// Replaces a text wherever it is in a file; a file without it fails the test.
inline void ReplaceInFile(const std::string& path, absl::string_view from,
                          absl::string_view to) {
  std::ifstream before(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(before), {});
  const std::string changed = absl::StrReplaceAll(bytes, {{from, to}});
  EXPECT_NE(changed, bytes) << path << " has no " << from;
  std::ofstream(path, std::ios::binary) << changed;
}

}  // namespace espalier::test

#endif  // ESPALIER_TESTS_SUPPORT_FOLDER_FILES_H_
