// K-async SGD (Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018): s += g, and once gradients of
// `workers_min` different workers are in s, w -= lr s / n, where n is the number of gradients in s; s = 0. In the paper
// a worker waits until its gradient is applied; here it continues, and its further gradients enter the mean but do not
// count as another worker's. Each row counts the workers that pushed to it, by rank modulo 96. A gradient that is
// already a sum over workers is applied at once. Slots s; n; and four floats per row with a bit for each worker.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/k_async_sgd.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

#include <bit>

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

constexpr std::uint32_t kBitsOfAFloat = 24;  // integers that a float holds exactly
constexpr std::uint32_t kWords = 4;

struct KAsyncSgd {
  explicit KAsyncSgd(const RuleCall& call)
      : rate(call.context.rate),
        needed(call.context.worker == kNoWorker ? 1 : static_cast<int>(call.options[0])),
        word(call.context.worker.value / kBitsOfAFloat % kWords),
        bit(1u << (call.context.worker.value % kBitsOfAFloat)) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT s, const float* HWY_RESTRICT g,
                             const float*) const {
    float& n = s[dim];
    float* const seen = s + dim + 1;
    n += 1.0f;
    seen[word] = static_cast<float>(static_cast<std::uint32_t>(seen[word]) | bit);
    int workers = 0;
    for (std::uint32_t i = 0; i < kWords; ++i) workers += std::popcount(static_cast<std::uint32_t>(seen[i]));
    for (std::uint32_t j = 0; j < dim; ++j) s[j] += g[j];
    if (workers < needed) return;
    const float step = rate / n;
    for (std::uint32_t j = 0; j < dim; ++j) {
      w[j] -= step * s[j];
      s[j] = 0.0f;
    }
    n = 0.0f;
    for (std::uint32_t i = 0; i < kWords; ++i) seen[i] = 0.0f;
  }
  float rate;
  int needed;
  std::uint32_t word, bit;
};

void ApplyKAsyncSgd(const RuleCall& call) { ApplyRows<KAsyncSgd>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyKAsyncSgd);

constexpr RuleOption kOptions[] = {
    {"workers_min", 2.0f, Range{1, 96},
     "whole number of different workers whose gradients s must contain for a step; at most fleet.workers"},
};
constexpr RuleSlot kSlots[] = {{"s"},
                               {.name = "n", .size = SlotSize::kRow},
                               {.name = "seen0", .size = SlotSize::kRow},
                               {.name = "seen1", .size = SlotSize::kRow},
                               {.name = "seen2", .size = SlotSize::kRow},
                               {.name = "seen3", .size = SlotSize::kRow}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule k_async_sgd = {
    .name = "k_async_sgd",
    .meaning =
        "s += g; once s contains gradients of workers_min different workers, w -= lr s / n with its n gradients, s = 0",
    .options = kOptions,
    .slots = kSlots,
    .by_section = true,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyKAsyncSgd)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE
