// Quality of predictions: sums that can be merged over splits and workers, and the measures computed from them. AUC is
// computed from a fixed grid of logits, so the counts are merged exactly, in any order.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tarn {

// Sums over scored rows. Add rows of one kind only (binary: AddBinary; classes: AddClass).
class Quality {
 public:
  // Logits are clipped to [-16, 16] and counted in 2^16 equal buckets (0.0005 wide). NaN counts as 0.
  static constexpr std::uint32_t kBuckets = 1u << 16;

  // Adds one row with the model's logit and the label 0/1. Its loss is added by AddLoss.
  void AddBinary(float logit, bool positive);
  // Adds the losses of rows counted by AddBinary (kernels/loss.h).
  void AddLoss(double loss) { loss_sum += loss; }
  // Adds one row of a classifier: its cross-entropy, and whether the predicted class is right.
  void AddClass(double loss, bool correct);
  // Adds `other`. Counts are exact, except that the count of a label in a bucket saturates at 2^32 - 1. loss_sum is
  // rounded, so its last bits depend on the order of merging.
  void Merge(const Quality& other);

  // Whether rows with logits were added (AddBinary). Without them Auc and NormalizedEntropy have no meaning.
  bool has_logits() const { return !buckets.empty(); }
  // Area under the ROC curve, with ties counted half; 0.5 if one class is missing.
  double Auc() const;
  double LogLoss() const;            // mean; 0 if empty
  double Accuracy() const;           // binary: positive if logit > 0
  double NormalizedEntropy() const;  // log-loss over the entropy of the mean label (He et al., ADKDD 2014);
                                     // 1 if one class is missing

  // A bucket by number; inserts it if it does not exist.
  struct Bucket;
  Bucket& At(std::uint32_t index);

  struct Bucket {
    std::uint32_t negatives = 0;
    std::uint32_t positives = 0;
    friend bool operator==(const Bucket&, const Bucket&) = default;
  };

  std::uint64_t rows = 0;
  std::uint64_t positives = 0;
  std::uint64_t correct = 0;
  double loss_sum = 0;
  std::vector<std::pair<std::uint32_t, Bucket>> buckets;  // non-empty buckets, in order of number
};

// Adds rows to an array of all buckets: a few nanoseconds per row, 520 KiB.
class QualityTally {
 public:
  QualityTally() : grid_(Quality::kBuckets), touched_(Quality::kBuckets / 64) {}

  // See Quality.
  void AddBinary(float logit, bool positive);
  void AddLoss(double loss) { sums_.AddLoss(loss); }
  void AddClass(double loss, bool correct) { sums_.AddClass(loss, correct); }

  // Returns the sums over the rows added since the last Take, and resets them.
  Quality Take();
  // The sums since the last Take, without buckets.
  const Quality& sums() const { return sums_; }

 private:
  Quality sums_;                        // without buckets
  std::vector<Quality::Bucket> grid_;   // all buckets
  std::vector<std::uint64_t> touched_;  // a bit per bucket: whether it has rows
};

}  // namespace tarn
