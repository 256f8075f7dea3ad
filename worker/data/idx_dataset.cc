#include "worker/data/idx_dataset.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "core/limits.h"
#include "worker/data/line_dataset.h"

namespace tarn::worker {
namespace {

constexpr std::uint32_t kImagesMagic = 0x00000803, kLabelsMagic = 0x00000801;
constexpr std::size_t kImagesHeaderBytes = 16, kLabelsHeaderBytes = 8;
constexpr std::uint64_t kPixelsMax = 1u << 20;  // of one image

std::uint32_t BigEndian32(std::string_view bytes, std::size_t offset) {
  std::uint32_t v = 0;
  for (std::size_t i = 0; i < 4; ++i) v = v << 8 | static_cast<unsigned char>(bytes[offset + i]);
  return v;
}

std::string PlainOrGzip(const std::string& path) {
  std::error_code ignored;
  const bool plain = std::filesystem::exists(path, ignored);
  return !plain && std::filesystem::exists(path + ".gz", ignored) ? path + ".gz" : path;
}

Status CheckHeader(const std::string& path, std::string_view bytes, std::uint32_t magic, std::size_t header_bytes) {
  if (bytes.size() >= header_bytes && BigEndian32(bytes, 0) == magic) return {};
  return Fail(ErrorCode::kMalformed,
              fmt::format("{} is not an idx file: expected {} bytes of header that begin with {:#010x}", path,
                          header_bytes, magic));
}

Status CheckSize(const std::string& path, std::string_view bytes, std::uint64_t expected) {
  if (bytes.size() == expected) return {};
  return Fail(ErrorCode::kMalformed,
              fmt::format("{} has {} bytes: expected {} by its header", path, bytes.size(), expected));
}

class IdxDataset final : public Dataset {
 public:
  IdxDataset(std::string name, FileBytes images, FileBytes labels, std::uint64_t rows, std::uint32_t pixels)
      : name_(std::move(name)), images_(std::move(images)), labels_(std::move(labels)), rows_(rows), pixels_(pixels) {
    for (std::size_t i = 0; i < scaled_.size(); ++i) scaled_[i] = static_cast<float>(i) / 255.0f;
  }

  std::uint64_t rows() const override { return rows_; }
  std::uint32_t fields() const override { return 0; }
  std::uint32_t dense_columns() const override { return pixels_; }
  std::uint64_t malformed() const override { return 0; }
  std::vector<std::string> malformed_messages() const override { return {}; }

  Status Append(std::uint64_t first_row, std::size_t rows, Batch* batch) const override {
    TARN_RETURN_IF_ERROR(CheckRows(name_, rows_, first_row, rows));
    batch->fields = 0;
    batch->dense_columns = pixels_;
    if (batch->offsets.empty()) batch->offsets.push_back(0);
    for (std::uint64_t row = first_row; row < first_row + rows; ++row)
      batch->labels.push_back(static_cast<unsigned char>(labels_.bytes()[kLabelsHeaderBytes + row]));
    batch->offsets.resize(batch->offsets.size() + rows, batch->offsets.back());
    const std::string_view pixels = images_.bytes().substr(kImagesHeaderBytes + first_row * pixels_, rows * pixels_);
    const std::size_t before = batch->dense.size();
    batch->dense.resize(before + pixels.size());
    std::ranges::transform(pixels, batch->dense.begin() + static_cast<std::ptrdiff_t>(before),
                           [this](char c) { return scaled_[static_cast<unsigned char>(c)]; });
    batch->rows += rows;
    TARN_RETURN_IF_ERROR(images_.CheckWhole());
    return labels_.CheckWhole();
  }

 private:
  const std::string name_;
  const FileBytes images_, labels_;
  const std::uint64_t rows_;
  const std::uint32_t pixels_;
  std::array<float, 256> scaled_{};
};

Status CheckClasses(const std::string& path, std::string_view labels, std::uint32_t classes) {
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (static_cast<unsigned char>(labels[i]) >= classes)
      return Fail(ErrorCode::kMalformed, fmt::format("{}: label {} is {}: expected less than data.classes = {}", path,
                                                     i, static_cast<unsigned char>(labels[i]), classes));
  return {};
}

}  // namespace

Expected<std::unique_ptr<Dataset>> OpenIdx(const DataSection& section, const std::string& prefix,
                                           const DatasetOptions& options) {
  const FileBytesOptions file_options{options.inflated_ram_bytes_max, options.cache_dir, options.stop};
  const std::string images_path = PlainOrGzip(prefix + "-images-idx3-ubyte");
  const std::string labels_path = PlainOrGzip(prefix + "-labels-idx1-ubyte");
  auto images = FileBytes::Open(images_path, "idx images, plain or .gz (the name in [data] is the prefix of the pair)",
                                file_options);
  if (!images) return std::unexpected(images.error());
  auto labels = FileBytes::Open(labels_path, "the idx labels of the images, plain or .gz", file_options);
  if (!labels) return std::unexpected(labels.error());
  const std::string_view image_bytes = images->bytes(), label_bytes = labels->bytes();
  TARN_RETURN_IF_ERROR(CheckHeader(images_path, image_bytes, kImagesMagic, kImagesHeaderBytes));
  TARN_RETURN_IF_ERROR(CheckHeader(labels_path, label_bytes, kLabelsMagic, kLabelsHeaderBytes));
  const std::uint64_t rows = BigEndian32(image_bytes, 4);
  const std::uint64_t image_pixels = std::uint64_t{BigEndian32(image_bytes, 8)} * BigEndian32(image_bytes, 12);
  if (image_pixels == 0 || image_pixels > kPixelsMax)
    return Fail(ErrorCode::kMalformed,
                fmt::format("{} has images of {} pixels: expected 1 to {}", images_path, image_pixels, kPixelsMax));
  TARN_RETURN_IF_ERROR(CheckSize(images_path, image_bytes, kImagesHeaderBytes + rows * image_pixels));
  TARN_RETURN_IF_ERROR(CheckSize(labels_path, label_bytes, kLabelsHeaderBytes + BigEndian32(label_bytes, 4)));
  if (BigEndian32(label_bytes, 4) != rows)
    return Fail(ErrorCode::kMalformed, fmt::format("{} has {} labels: expected {}, one for each image of {}",
                                                   labels_path, BigEndian32(label_bytes, 4), rows, images_path));
  if (rows == 0) return Fail(ErrorCode::kInvalidArgument, fmt::format("data file {} has no images", images_path));
  TARN_RETURN_IF_ERROR(images->CheckWhole());
  TARN_RETURN_IF_ERROR(labels->CheckWhole());
  TARN_RETURN_IF_ERROR(CheckClasses(labels_path, label_bytes.substr(kLabelsHeaderBytes), section.classes));
  return std::make_unique<IdxDataset>(prefix, std::move(*images), std::move(*labels),
                                      options.limit_rows == 0 ? rows : std::min(rows, options.limit_rows),
                                      static_cast<std::uint32_t>(image_pixels));
}

}  // namespace tarn::worker
