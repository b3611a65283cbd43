#include "espalier/io/llama2c_convert.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/io/atomic_directory.h"
#include "espalier/io/atomic_file.h"
#include "espalier/io/json.h"
#include "espalier/io/safetensors_writer.h"
#include "espalier/runtime/file_map.h"

namespace espalier {

namespace {

constexpr int64_t kHeadBytes = 28;  // 7 int32
// Bounds every size in the head, and with it every product of three of them.
constexpr int64_t kMaxSize = 1 << 20;

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

// One block of the file: the same tensor of every layer, or a single one.
struct Block {
  std::string name;  // behind "model.layers.N." when it has layers
  bool per_layer = false;
  std::vector<int64_t> shape;  // of one layer
  int64_t rotary_heads = 0;    // rows to reorder; 0: none
  bool skipped = false;        // read over
};

std::vector<Block> BlocksOf(const Llama2cConfig& c) {
  const int64_t q = c.hidden_size;
  const int64_t kv = c.num_key_value_heads * c.head_dim();
  const int64_t h = c.hidden_size;
  const int64_t i = c.intermediate_size;
  std::vector<Block> blocks = {
      {"model.embed_tokens.weight", false, {c.vocab_size, h}},
      {"input_layernorm.weight", true, {h}},
      {"self_attn.q_proj.weight", true, {q, h}, c.num_attention_heads},
      {"self_attn.k_proj.weight", true, {kv, h}, c.num_key_value_heads},
      {"self_attn.v_proj.weight", true, {kv, h}},
      {"self_attn.o_proj.weight", true, {h, q}},
      {"post_attention_layernorm.weight", true, {h}},
      {"mlp.gate_proj.weight", true, {i, h}},
      {"mlp.down_proj.weight", true, {h, i}},
      {"mlp.up_proj.weight", true, {i, h}},
      {"model.norm.weight", false, {h}},
      {"", false, {c.max_position_embeddings, c.head_dim()}, 0, true},
  };
  if (!c.tie_word_embeddings) {
    blocks.push_back({"lm_head.weight", false, {c.vocab_size, h}});
  }
  return blocks;
}

// -1 on overflow.
int64_t FloatsOf(const Block& block) {
  int64_t floats = 1;
  for (const int64_t extent : block.shape) {
    if (__builtin_mul_overflow(floats, extent, &floats)) return -1;
  }
  return floats;
}

// Bytes of a file with these sizes; -1 on overflow.
int64_t FileBytes(const Llama2cConfig& config) {
  int64_t bytes = kHeadBytes;
  for (const Block& block : BlocksOf(config)) {
    int64_t block_bytes = FloatsOf(block);
    if (block_bytes < 0 ||
        __builtin_mul_overflow(
            block_bytes,
            block.per_layer ? 4 * config.num_hidden_layers : int64_t{4},
            &block_bytes) ||
        __builtin_add_overflow(bytes, block_bytes, &bytes)) {
      return -1;
    }
  }
  return bytes;
}

std::string NameOf(const Block& block, int64_t layer) {
  return block.per_layer ? absl::StrCat("model.layers.", layer, ".", block.name)
                         : block.name;
}

// Each head's rows from [head_dim/2, 2, in] to [2, head_dim/2, in].
std::vector<uint8_t> SplitHalves(absl::Span<const uint8_t> rows,
                                 int64_t num_heads, int64_t head_dim) {
  std::vector<uint8_t> result(rows.size());
  const size_t row_bytes =
      rows.size() / static_cast<size_t>(num_heads * head_dim);
  for (int64_t head = 0; head < num_heads; ++head) {
    for (int64_t r = 0; r < head_dim; ++r) {
      const int64_t source = head * head_dim + r;
      const int64_t target = head * head_dim + r % 2 * (head_dim / 2) + r / 2;
      std::memcpy(result.data() + static_cast<size_t>(target) * row_bytes,
                  rows.data() + static_cast<size_t>(source) * row_bytes,
                  row_bytes);
    }
  }
  return result;
}

absl::Status WriteWeights(absl::Span<const uint8_t> file,
                          const Llama2cConfig& config,
                          const std::string& path) {
  const std::vector<Block> blocks = BlocksOf(config);
  std::vector<TensorSpec> specs;
  for (const Block& block : blocks) {
    if (block.skipped) continue;
    const int64_t count = block.per_layer ? config.num_hidden_layers : 1;
    for (int64_t layer = 0; layer < count; ++layer) {
      specs.push_back(
          {NameOf(block, layer), SafetensorsDType::kF32, block.shape});
    }
  }
  absl::StatusOr<SafetensorsWriter> writer =
      SafetensorsWriter::Create(path, specs, {{"format", "pt"}});
  if (!writer.ok()) return writer.status();
  absl::Span<const uint8_t> rest =
      file.subspan(static_cast<size_t>(kHeadBytes));
  for (const Block& block : blocks) {
    const int64_t count = block.per_layer ? config.num_hidden_layers : 1;
    const size_t bytes = static_cast<size_t>(4 * FloatsOf(block));
    for (int64_t layer = 0; layer < count; ++layer) {
      const absl::Span<const uint8_t> data = rest.subspan(0, bytes);
      rest.remove_prefix(bytes);
      if (block.skipped) continue;
      const std::string name = NameOf(block, layer);
      absl::Status status =
          block.rotary_heads == 0
              ? writer->Append(name, data)
              : writer->Append(name, SplitHalves(data, block.rotary_heads,
                                                 config.head_dim()));
      if (!status.ok()) return status;
    }
  }
  return writer->Finish();
}

absl::Status WriteJsonFile(const std::string& path, const JsonValue& value) {
  const absl::StatusOr<std::string> text = WriteJson(value);
  if (!text.ok()) return Named(path, text.status());
  return WriteFileAtomically(path, *text);
}

JsonValue ModelConfig(const Llama2cConfig& c) {
  return JsonValue::Object{
      {"architectures", JsonValue::Array{"LlamaForCausalLM"}},
      {"attention_bias", false},
      {"bos_token_id", 1},
      {"eos_token_id", 2},
      {"head_dim", c.head_dim()},
      {"hidden_act", "silu"},
      {"hidden_size", c.hidden_size},
      {"intermediate_size", c.intermediate_size},
      {"max_position_embeddings", c.max_position_embeddings},
      {"mlp_bias", false},
      {"model_type", "llama"},
      {"num_attention_heads", c.num_attention_heads},
      {"num_hidden_layers", c.num_hidden_layers},
      {"num_key_value_heads", c.num_key_value_heads},
      {"rms_norm_eps", 1e-5},
      {"rope_theta", 10000.0},
      {"tie_word_embeddings", c.tie_word_embeddings},
      {"torch_dtype", "float32"},
      {"vocab_size", c.vocab_size}};
}

JsonValue TokenizerConfig(const Llama2cConfig& c) {
  return JsonValue::Object{{"bos_token", "<s>"},
                           {"eos_token", "</s>"},
                           {"model_max_length", c.max_position_embeddings},
                           {"tokenizer_class", "PreTrainedTokenizerFast"},
                           {"unk_token", "<unk>"}};
}

}  // namespace

absl::StatusOr<Llama2cConfig> ParseLlama2cConfig(
    absl::Span<const uint8_t> file) {
  std::array<int32_t, 7> head{};
  static_assert(sizeof(head) == kHeadBytes);
  if (file.size() < sizeof(head)) {
    return absl::DataLossError(
        absl::StrCat(file.size(), " bytes, a llama2.c checkpoint has at least ",
                     kHeadBytes));
  }
  std::memcpy(head.data(), file.data(), sizeof(head));
  Llama2cConfig config;
  config.hidden_size = head[0];
  config.intermediate_size = head[1];
  config.num_hidden_layers = head[2];
  config.num_attention_heads = head[3];
  config.num_key_value_heads = head[4];
  config.tie_word_embeddings = head[5] > 0;
  config.vocab_size = head[5] < 0 ? -int64_t{head[5]} : head[5];
  config.max_position_embeddings = head[6];
  for (const auto& [name, value] :
       {std::pair("dim", config.hidden_size),
        std::pair("hidden_dim", config.intermediate_size),
        std::pair("n_layers", config.num_hidden_layers),
        std::pair("n_heads", config.num_attention_heads),
        std::pair("n_kv_heads", config.num_key_value_heads),
        std::pair("vocab_size", config.vocab_size),
        std::pair("seq_len", config.max_position_embeddings)}) {
    if (value < 1 || value > kMaxSize) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", value, ", expected 1 to ", kMaxSize));
    }
  }
  if (config.hidden_size % config.num_attention_heads != 0 ||
      config.head_dim() % 2 != 0 ||
      config.num_attention_heads % config.num_key_value_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dim ", config.hidden_size, ", n_heads ", config.num_attention_heads,
        " and n_kv_heads ", config.num_key_value_heads,
        " do not divide into heads of an even size"));
  }
  const int64_t expected = FileBytes(config);
  if (expected != static_cast<int64_t>(file.size())) {
    return absl::DataLossError(absl::StrCat(
        file.size(), " bytes, the sizes in its head ask for ", expected));
  }
  return config;
}

absl::Status ConvertLlama2c(const std::string& model_path,
                            const std::string& tokenizer_path,
                            const std::string& output_dir) {
  const absl::StatusOr<std::shared_ptr<FileMap>> model =
      FileMap::Open(model_path);
  if (!model.ok()) return model.status();
  const absl::StatusOr<std::shared_ptr<FileMap>> tokenizer =
      FileMap::Open(tokenizer_path);
  if (!tokenizer.ok()) return tokenizer.status();
  const absl::StatusOr<Llama2cConfig> config =
      ParseLlama2cConfig((*model)->bytes());
  if (!config.ok()) return Named(model_path, config.status());
  const absl::StatusOr<std::string> tokenizer_json = ConvertLlama2cTokenizer(
      (*tokenizer)->bytes(), config->vocab_size, tokenizer_path);
  if (!tokenizer_json.ok()) return tokenizer_json.status();
  absl::StatusOr<AtomicDirectory> dir = AtomicDirectory::Create(output_dir);
  if (!dir.ok()) return dir.status();
  const JsonValue generation =
      JsonValue::Object{{"bos_token_id", 1}, {"eos_token_id", 2}};
  absl::Status status =
      WriteWeights((*model)->bytes(), *config, dir->Path("model.safetensors"));
  if (status.ok()) {
    status = WriteJsonFile(dir->Path("config.json"), ModelConfig(*config));
  }
  if (status.ok()) {
    status = WriteJsonFile(dir->Path("generation_config.json"), generation);
  }
  if (status.ok()) {
    status = WriteJsonFile(dir->Path("tokenizer_config.json"),
                           TokenizerConfig(*config));
  }
  if (status.ok()) {
    status = WriteFileAtomically(dir->Path("tokenizer.json"), *tokenizer_json);
  }
  return status.ok() ? dir->Commit() : status;
}

}  // namespace espalier
