// Writes a NumPy .npz archive of arrays whose lengths are not known before their end: a ZIP file without compression,
// with 64-bit sizes (APPNOTE.TXT 6.3.9, 4.5.3), of .npy members (NEP 1, version 1.0). Holds a piece of the file and no
// more. Blocks; one thread. It is written here because Debian has no writer of .npz for C++, and the ZIP libraries that
// it has write a member from front to back, while the shape at the front of an array is known only at its end.
//
//   auto npz = NpzWriter::Create("rows.npz");
//   npz->BeginArray("users.values", "<f4", 16);   // any number of rows of 16
//   npz->Append(std::as_bytes(row));
//   npz->EndArray();
//   npz->Finish();                                // now the file is there
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/error.h"

namespace tarn::inspector {

class NpzWriter {
 public:
  // Begins beside `path`; only Finish puts the file there. kIo, naming the path.
  static Expected<std::unique_ptr<NpzWriter>> Create(const std::string& path);
  // Removes what was begun and not finished.
  ~NpzWriter();

  // dtype: "<f4", "<u8", "<u4". columns: items of a row; 0: one, and the array has one dimension.
  Status BeginArray(const std::string& name, const std::string& dtype, std::uint32_t columns);
  Status Append(std::span<const std::byte> rows);
  Status EndArray();
  // The bytes of the file.
  Expected<std::uint64_t> Finish();

 private:
  class Impl;
  explicit NpzWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::inspector
