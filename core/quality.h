// How good predictions are: counts that can be added up over splits and workers in any order, and the figures made
// of them. AUC comes from a fixed grid of logits, so that merging is exact integer addition.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tarn {

// Sums over scored rows. Add rows of one kind only (binary: AddBinary; classes: AddClass).
class Quality {
 public:
  // Logits are cut to [-16, 16] and fall into 2^16 equal buckets (0.0005 wide).
  static constexpr std::uint32_t kBuckets = 1u << 16;

  // One row with the model's logit and the label 0/1; its loss comes by AddLoss.
  void AddBinary(float logit, bool positive);
  // The sum of the losses of rows that AddBinary counts (kernels/loss.h).
  void AddLoss(double loss) { loss_sum += loss; }
  // One row of a classifier: its cross-entropy and whether the best class was right.
  void AddClass(double loss, bool correct);
  // Exact, but for a bucket with 2^32 rows of a label: it counts one less for good.
  void Merge(const Quality& other);

  // Area under the ROC curve, ties counted half; 0.5 if one class is missing.
  double Auc() const;
  double LogLoss() const;            // mean; 0 if empty
  double Accuracy() const;           // binary: logit > 0 says positive
  double NormalizedEntropy() const;  // log-loss over the entropy of the mean label (He et al., ADKDD 2014);
                                     // 1 if one class is missing

  // A bucket to be changed; a new one moves those behind it.
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
  std::vector<std::pair<std::uint32_t, Bucket>> buckets;  // those that hold rows, by their number, ascending
};

// Adds rows one by one into an array of all buckets: a few nanoseconds a row, and 520 KiB.
class QualityTally {
 public:
  QualityTally() : grid_(Quality::kBuckets), touched_(Quality::kBuckets / 64) {}

  // As in Quality.
  void AddBinary(float logit, bool positive);
  void AddLoss(double loss) { sums_.AddLoss(loss); }
  void AddClass(double loss, bool correct) { sums_.AddClass(loss, correct); }

  // What was added since the last Take.
  Quality Take();
  // The same without its buckets.
  const Quality& sums() const { return sums_; }

 private:
  Quality sums_;                        // without buckets
  std::vector<Quality::Bucket> grid_;   // all of them
  std::vector<std::uint64_t> touched_;  // a bit for each: whether it holds rows
};

}  // namespace tarn
