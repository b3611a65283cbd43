// What every command does with flags, exit codes and standard output.
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"
#include "espalier/tests/cli/command.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Arguments = std::vector<std::string>;

constexpr char kLlama[] = R"({"model_type":"llama","vocab_size":24,
    "hidden_size":24,"num_hidden_layers":2,"num_attention_heads":4,
    "num_key_value_heads":2,"head_dim":8,"intermediate_size":40,
    "tie_word_embeddings":true})";

// Every command with all that it requires; "DIR" is a folder that is there,
// "FILE" a file in it, "NEW" a name that is free.
const std::vector<Arguments>& Commands() {
  static const auto* const commands = new std::vector<Arguments>{
      {"finetune", "--model", "DIR", "--data", "FILE", "--output", "NEW"},
      {"data", "inspect", "--tokenizer", "DIR", "--data", "FILE"},
      {"data", "pack", "--tokenizer", "DIR", "--data", "FILE", "--output",
       "NEW"},
      {"demo", "--output", "NEW"},
      {"convert", "--model", "DIR", "--output", "NEW"},
      {"convert-llama2c", "--model", "FILE", "--tokenizer", "FILE", "--output",
       "NEW"},
      {"inspect", "DIR"},
      {"verify", "DIR"},
      {"tokenize", "--tokenizer", "DIR"},
      {"render", "--tokenizer", "DIR", "--data", "FILE"},
      {"shard", "DIR", "--out", "NEW"},
      {"unshard", "DIR", "--out", "NEW"}};
  return *commands;
}

class UsageTest : public ::testing::Test {
 protected:
  UsageTest() {
    std::filesystem::create_directory(dir_.Path("empty"));
    dir_.Write("empty/file", "");
  }
  Arguments With(Arguments arguments, const std::string& dir) const {
    for (std::string& word : arguments) {
      if (word == "DIR") word = dir;
      if (word == "FILE") word = dir + "/file";
      if (word == "NEW") word = dir_.Path("new");
    }
    return arguments;
  }
  Arguments Model() {
    EXPECT_TRUE(test::WriteSparseCheckpoint(kLlama, dir_.Path("model")).ok());
    return {"inspect", dir_.Path("model")};
  }

  test::TempDir dir_;
};

TEST_F(UsageTest, HelpNamesCommandsAndExitCodes) {
  const test::CommandResult help = test::Espalier({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const Arguments& command : Commands()) {
    EXPECT_THAT(help.out, HasSubstr(absl::StrCat("\n  ", command[0], " ")));
    Arguments words = {command[0], "--help"};
    if (command[0] == "data") words.insert(words.begin() + 1, command[1]);
    const test::CommandResult own = test::Espalier(words);
    EXPECT_EQ(own.exit_code, 0) << command[0];
    EXPECT_THAT(own.out, HasSubstr("Usage: ")) << command[0];
  }
  const std::string readme = test::ReadFile(ESPALIER_SOURCE_DIR "/README.md");
  for (const char* line :
       {"0  in order", "1  a fault of espalier itself",
        "2  flags that do not suit", "3  a file or folder that is missing",
        "4  short of disk space", "5  a store or another machine",
        "6  training met numbers"}) {
    EXPECT_THAT(help.out, HasSubstr(absl::StrCat("\n  ", line)));
    EXPECT_THAT(readme, HasSubstr(absl::StrCat("| ", std::string(line, 1),
                                               " | ", line + 3)));
  }
}

TEST_F(UsageTest, FlagsThatDoNotSuitAreTwo) {
  EXPECT_EQ(test::Espalier({}).exit_code, 2);
  EXPECT_EQ(test::Espalier({"transmogrify"}).exit_code, 2);
  for (const Arguments& command : Commands()) {
    Arguments unknown = With(command, dir_.Path("empty"));
    unknown.emplace_back("--no-such-flag");
    const test::CommandResult result = test::Espalier(unknown);
    EXPECT_EQ(result.exit_code, 2) << command[0];
    EXPECT_THAT(result.err, HasSubstr("no-such-flag")) << command[0];
    const size_t name = command[0] == "data" ? 2 : 1;
    const Arguments bare(command.begin(),
                         command.begin() + static_cast<int>(name));
    EXPECT_EQ(test::Espalier(bare).exit_code, 2) << command[0];
  }
}

TEST_F(UsageTest, WholeNumbersAreTakenAsWritten) {
  struct Case {
    size_t command;  // of Commands()
    std::vector<std::string> flags;
  };
  const Case cases[] = {{0,
                         {"--max-steps", "--lora-rank", "--seed", "--threads",
                          "--micro-batch-tokens"}},
                        {1, {"--samples", "--max-sample-tokens"}},
                        {3, {"--pretrain-steps", "--seed", "--threads"}},
                        {4, {"--int4-group"}},
                        {9, {"--first", "--count"}},
                        {10, {"--tp", "--ep", "--etp", "--pp"}}};
  for (const Case& c : cases) {
    for (const std::string& flag : c.flags) {
      for (const std::string value :
           {"99999999999999999999", "9999999999999999999999999", "0x10", "010",
            "1.5", "7x", "+7", "-99999999999999999999"}) {
        Arguments arguments = With(Commands()[c.command], dir_.Path("empty"));
        arguments.push_back(absl::StrCat(flag, "=", value));
        const test::CommandResult result = test::Espalier(arguments);
        EXPECT_EQ(result.exit_code, 2) << flag << " " << value;
        EXPECT_THAT(result.err, AllOf(HasSubstr(flag), HasSubstr(value)))
            << flag << " " << value;
      }
    }
  }
  for (const size_t command : {size_t{0}, size_t{3}}) {
    Arguments arguments = With(Commands()[command], dir_.Path("empty"));
    arguments.emplace_back("--seed=-1");
    const test::CommandResult result = test::Espalier(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err,
                HasSubstr("--seed: got -1, expected a whole number of 0 or "
                          "more, in at most 64 bits"));
  }
  for (const std::string size :
       {"99999999999999999999", "99999999999GB", "-1", "5XB"}) {
    Arguments arguments = With(Commands()[10], dir_.Path("empty"));
    arguments.push_back("--max-shard=" + size);
    const test::CommandResult result = test::Espalier(arguments);
    EXPECT_EQ(result.exit_code, 2) << size;
    EXPECT_THAT(result.err, HasSubstr("--max-shard")) << size;
  }
}

// Bounds that nobody writes, such as the largest double, are not printed.
TEST_F(UsageTest, BoundsAreReadable) {
  const std::pair<size_t, std::string> cases[] = {
      {1, "--samples=-1"},     {1, "--max-sample-tokens=0"},
      {9, "--first=-1"},       {9, "--count=0"},
      {10, "--max-shard=0"},   {4, "--max-shard=0"},
      {4, "--int4-group=1e9"}, {0, "--max-steps=1e9"}};
  for (const auto& [command, flag] : cases) {
    Arguments arguments = With(Commands()[command], dir_.Path("empty"));
    arguments.push_back(flag);
    const std::string err = test::Espalier(arguments).err;
    EXPECT_THAT(err, AllOf(HasSubstr(flag.substr(0, flag.find('='))),
                           HasSubstr("expected a whole number")));
    EXPECT_THAT(err, ::testing::Not(::testing::ContainsRegex("[0-9]{15}")));
  }
}

TEST_F(UsageTest, HelpShowsDefaults) {
  const std::string convert = test::Espalier({"convert", "--help"}).out;
  for (const char* text : {"--to TEXT=keep", "--experts TEXT=keep",
                           "--int4-group INT=32", "=5GB"}) {
    EXPECT_THAT(convert, HasSubstr(text));
  }
  const std::string shard = test::Espalier({"shard", "--help"}).out;
  EXPECT_THAT(shard, AllOf(HasSubstr("--tp INT=1"), HasSubstr("=5GB")));
}

// Missing, of another kind, below a file: the user's files, so 3.
TEST_F(UsageTest, FilesThatAreNotThereAreThree) {
  for (const Arguments& command : Commands()) {
    if (command[0] == "demo") continue;  // reads nothing
    for (const std::string& dir :
         {dir_.Path("absent"), dir_.Path("empty/file/below"),
          dir_.Path("empty")}) {
      const test::CommandResult result = test::Espalier(With(command, dir));
      EXPECT_EQ(result.exit_code, 3)
          << command[0] << " " << dir << ": " << result.err;
      EXPECT_THAT(result.err, HasSubstr(dir)) << command[0];
      EXPECT_THAT(result.out, Not(HasSubstr(dir))) << command[0];
    }
  }
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("new")));
}

TEST_F(UsageTest, OutputThatCannotBeMadeIsThree) {
  Model();
  const std::string file = dir_.Path("empty/file");
  const std::string model = dir_.Path("model");
  for (const std::string& out : {file, file + "/below", file + "/a/b"}) {
    for (const Arguments& arguments :
         {Arguments{"demo", "--pretrain-steps=0", "--output", out},
          Arguments{"convert", "--model", model, "--output", out},
          Arguments{"shard", model, "--out", out},
          Arguments{"verify", model, "--write-manifest", "--manifest-output",
                    out + "/m"}}) {
      const test::CommandResult result = test::Espalier(arguments);
      EXPECT_EQ(result.exit_code, 3)
          << arguments[0] << " " << out << ": " << result.err;
      EXPECT_THAT(result.err, HasSubstr(file)) << arguments[0];
    }
  }
  EXPECT_EQ(test::ReadFile(file), "");
}

// Before anything is read or written.
TEST_F(UsageTest, EmptyOutputPathsAreTwo) {
  std::vector<Arguments> cases;
  for (const Arguments& command : Commands()) {
    Arguments words = With(command, dir_.Path("absent"));
    const auto output = std::find(words.begin(), words.end(), dir_.Path("new"));
    if (output == words.end()) continue;
    output->clear();
    cases.push_back(std::move(words));
  }
  ASSERT_EQ(cases.size(), 7u);
  for (const auto& [command, flag] :
       {std::pair<size_t, const char*>{1, "--html"},
        {7, "--manifest-output"}}) {
    cases.push_back(With(Commands()[command], dir_.Path("absent")));
    cases.back().emplace_back(flag);
    cases.back().emplace_back();
  }
  for (const Arguments& words : cases) {
    const test::CommandResult result = test::Espalier(words);
    EXPECT_EQ(result.exit_code, 2) << words[0] << " " << words[1];
    EXPECT_THAT(result.err, HasSubstr("is empty, expected a path"))
        << words[0] << " " << words[1];
  }
}

TEST_F(UsageTest, OutputThatDoesNotArriveIsThree) {
  const Arguments inspect = Model();
  for (const char* extra : {"", "--json"}) {
    Arguments arguments = inspect;
    if (*extra != '\0') arguments.emplace_back(extra);
    test::CommandOptions full;
    full.out = "/dev/full";
    test::CommandOptions closed;
    closed.closed = {1};
    for (const auto& options : {full, closed}) {
      const test::CommandResult result = test::Espalier(arguments, options);
      EXPECT_EQ(result.exit_code, 3);
      EXPECT_THAT(result.err, HasSubstr("standard output"));
    }
  }
}

// A file that is opened may get the number of a closed stream; nothing is
// printed while one is written.
TEST_F(UsageTest, ClosedStreamsSpoilNoFile) {
  Model();
  test::CommandOptions options;
  options.closed = {0, 1, 2};
  const Arguments convert = {"convert", "--model", dir_.Path("model"),
                             "--output", dir_.Path("copy")};
  EXPECT_EQ(test::Espalier(convert, options).exit_code, 3);
  EXPECT_EQ(test::Espalier({"verify", dir_.Path("copy"), "--full"}).exit_code,
            0);
  for (const auto& entry :
       std::filesystem::directory_iterator(dir_.Path("copy"))) {
    EXPECT_THAT(test::ReadFile(entry.path().string()),
                Not(HasSubstr("weights: ")))
        << entry.path();
  }
}

}  // namespace
}  // namespace espalier
