// What holds for every op: operands lie on one device of one context, and what
// is written may be written. Launch (runtime/kernel.h) sees to both.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/ops/adamw/adamw.h"
#include "espalier/ops/adamw8bit/adamw8bit.h"
#include "espalier/ops/attention/attention.h"
#include "espalier/ops/delta_rule/delta_rule.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/embedding/embedding.h"
#include "espalier/ops/embedding/rows.h"
#include "espalier/ops/grouped_matmul/grouped_matmul.h"
#include "espalier/ops/kda_gate/kda_gate.h"
#include "espalier/ops/layer_norm/layer_norm.h"
#include "espalier/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/muon/muon.h"
#include "espalier/ops/rms_norm/rms_norm.h"
#include "espalier/ops/rope/rope.h"
#include "espalier/ops/sgd/sgd.h"
#include "espalier/ops/short_conv/short_conv.h"
#include "espalier/ops/swiglu/swiglu.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"

namespace espalier {
namespace {

Variable F32(Device& device, const Shape& shape) {
  return Variable(Tensor::Zeros(device, shape, kF32));
}
Tensor I32(Device& device, int64_t count) {
  return Tensor::Zeros(device, {count}, kI32);
}

AttentionOptions OneDocument(int32_t num_tokens) {
  AttentionOptions options;
  options.cu_seqlens = std::make_shared<const std::vector<int32_t>>(
      std::vector<int32_t>{0, num_tokens});
  return options;
}

// An op with one operand on device b, the others on a.
struct Case {
  std::string name;
  std::function<void(Device& a, Device& b)> run;
  bool reads_back = false;  // needs data, which meta has not
};

std::vector<Case> Cases() {
  return {
      {"add",
       [](auto& a, auto& b) {
         Add(F32(a, {4, 3}), F32(b, {4, 3}));
       }},
      {"add row",
       [](auto& a, auto& b) {
         Add(F32(a, {4, 3}), F32(b, {3}));
       }},
      {"mul",
       [](auto& a, auto& b) {
         Mul(F32(a, {4, 3}), F32(b, {4, 3}));
       }},
      {"matmul",
       [](auto& a, auto& b) {
         MatMul(F32(a, {4, 3}), F32(b, {3, 5}));
       }},
      {"linear",
       [](auto& a, auto& b) {
         Linear(F32(a, {4, 3}), F32(b, {5, 3}));
       }},
      {"linear bias",
       [](auto& a, auto& b) {
         Linear(F32(a, {4, 3}), F32(a, {5, 3}), F32(b, {5}));
       }},
      {"grouped matmul",
       [](auto& a, auto& b) {
         GroupedMatMul(F32(a, {4, 3}), F32(b, {2, 5, 3}), {0, 1, 4});
       }},
      {"rms norm",
       [](auto& a, auto& b) {
         RmsNorm(F32(a, {4, 3}), F32(b, {3}), 1e-6);
       }},
      {"layer norm bias",
       [](auto& a, auto& b) {
         LayerNorm(F32(a, {4, 3}), F32(a, {3}), F32(b, {3}), 1e-6);
       }},
      {"swiglu",
       [](auto& a, auto& b) {
         GatedActivation(Activation::kSilu, F32(a, {4, 3}), F32(b, {4, 3}));
       }},
      {"embedding",
       [](auto& a, auto& b) {
         Embedding(F32(a, {7, 3}), I32(b, 4));
       }},
      {"put rows",
       [](auto& a, auto& b) {
         PutRows(Tensor::Zeros(a, {7, 3}, kF32), I32(a, 2),
                 Tensor::Zeros(b, {2, 3}, kF32));
       }},
      {"rope",
       [](auto& a, auto& b) {
         RopeOptions options;
         options.rotary_dim = 4;
         Rope(F32(a, {3, 2, 4}), I32(b, 3), options);
       }},
      {"attention",
       [](auto& a, auto& b) {
         Attention(F32(a, {3, 2, 4}), F32(a, {3, 1, 4}), F32(b, {3, 1, 5}),
                   OneDocument(3));
       }},
      {"short conv",
       [](auto& a, auto& b) {
         ShortConv(F32(a, {3, 2}), F32(b, {2, 1, 4}), Variable(),
                   {OneDocument(3).cu_seqlens, true, true});
       }},
      {"kda gate",
       [](auto& a, auto& b) {
         KdaGate(F32(a, {3, 2, 4}), F32(a, {2}), F32(b, {8}), {});
       }},
      {"delta rule",
       [](auto& a, auto& b) {
         DeltaRule(F32(a, {3, 1, 4}), F32(a, {3, 1, 4}), F32(a, {3, 2, 5}),
                   F32(b, {3, 2}), F32(a, {3, 2}), Variable(),
                   {.cu_seqlens = OneDocument(3).cu_seqlens});
       }},
      {"linear cross entropy",
       [](auto& a, auto& b) {
         LinearCrossEntropy(F32(a, {4, 3}), F32(b, {7, 3}), I32(a, 4));
       }},
      {"linear cross entropy labels",
       [](auto& a, auto& b) {
         LinearCrossEntropy(F32(a, {4, 3}), F32(a, {7, 3}), I32(b, 4));
       }},
      {"logits",
       [](auto& a, auto& b) {
         Logits(F32(a, {4, 3}), F32(b, {7, 3}));
       }},
      {"adamw",
       [](auto& a, auto& b) {
         const auto at = [](Device& on) { return F32(on, {5}).value(); };
         AdamW(at(a), at(a), at(a), at(b), AdamWUpdate());
       }},
      {"adamw8bit",
       [](auto& a, auto& b) {
         AdamW8Bit(F32(a, {5}).value(), F32(a, {5}).value(),
                   AdamW8BitMoments::Zeros(b, 5), AdamWUpdate());
       }},
      {"sgd",
       [](auto& a, auto& b) {
         Sgd(F32(a, {5}).value(), F32(b, {5}).value(), Tensor(), SgdUpdate());
       }},
      {"muon",
       [](auto& a, auto& b) {
         const auto at = [](Device& on) { return F32(on, {3, 5}).value(); };
         Muon(at(a), at(b), at(a), MuonUpdate());
       },
       /*reads_back=*/true},
  };
}

TEST(OperandsTest, LieOnOneDeviceOfOneContext) {
  auto context = *Context::Create({.num_threads = 2});
  auto other = *Context::Create({.num_threads = 1});
  const std::vector<Device*> devices = {&context->cpu(), &context->sim(),
                                        &context->meta(), &other->cpu(),
                                        &other->meta()};
  for (const Case& c : Cases()) {
    for (Device* a : devices) {
      for (Device* b : devices) {
        const absl::Status status = internal::Guard([&] { c.run(*a, *b); });
        const std::string where = absl::StrCat(c.name, " ", ToString(a->type()),
                                               " ", ToString(b->type()));
        if (a == b && !(c.reads_back && a->type() == kMeta)) {
          EXPECT_TRUE(status.ok()) << where << ": " << status;
        } else {
          EXPECT_TRUE(absl::IsInternal(status)) << where << ": " << status;
        }
      }
    }
  }
  EXPECT_THAT(
      internal::Guard([&] {
        Linear(F32(context->cpu(), {4, 3}), F32(context->sim(), {5, 3}));
      }).message(),
      ::testing::HasSubstr("input 2 is f32 [3, 5] on sim, expected on cpu"));
}

TEST(OperandsTest, WrittenOnesAreNotReadOnly) {
  auto context = *Context::Create({.num_threads = 1});
  Device& cpu = context->cpu();
  const std::vector<float> pages(6);
  const Tensor mapped =
      Tensor::MapReadOnly(cpu, {2, 3}, kF32, pages.data(), nullptr);
  const std::vector<uint8_t> bytes(6);
  const Tensor codes =
      Tensor::MapReadOnly(cpu, {6}, kU8, bytes.data(), nullptr);
  const auto own = [&] { return Tensor::Zeros(cpu, {2, 3}, kF32); };
  SgdUpdate with_momentum;
  with_momentum.learning_rate = with_momentum.momentum = 0.5;
  MuonUpdate muon;
  muon.learning_rate = 0.5;
  AdamWUpdate adam;
  adam.learning_rate = 0.5;
  AdamW8BitMoments moments = AdamW8BitMoments::Zeros(cpu, 6);
  moments.v_codes = codes;
  const std::vector<std::function<void()>> writes = {
      [&] { AdamW(mapped, own(), own(), own(), adam); },
      [&] { AdamW(own(), own(), mapped, own(), adam); },
      [&] { AdamW(own(), own(), own(), mapped, adam); },
      [&] { Sgd(mapped, own(), own(), with_momentum); },
      [&] { Sgd(own(), own(), mapped, with_momentum); },
      [&] { Muon(mapped, own(), own(), muon); },
      [&] { Muon(own(), own(), mapped, muon); },
      [&] {
        AdamW8Bit(Tensor::Zeros(cpu, {6}, kF32), Tensor::Zeros(cpu, {6}, kF32),
                  moments, adam);
      },
      [&] {
        PutRows(mapped, I32(cpu, 1), Tensor::Zeros(cpu, {1, 3}, kF32));
      },
  };
  for (size_t i = 0; i < writes.size(); ++i) {
    EXPECT_TRUE(absl::IsInternal(internal::Guard(writes[i]))) << i;
  }
  EXPECT_EQ(pages, std::vector<float>(6));
  EXPECT_EQ(internal::Guard([&] { AdamW(own(), mapped, own(), own(), adam); }),
            absl::OkStatus());
  EXPECT_THAT(
      internal::Guard(writes[1]).message(),
      ::testing::HasSubstr("adamw: output 2 is f32 [2, 3] on cpu in read-only "
                           "memory"));
}

}  // namespace
}  // namespace espalier
