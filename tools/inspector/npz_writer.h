// Writes a NumPy .npz archive of arrays whose lengths are known only at their end: a ZIP file without compression, with
// 64-bit sizes (APPNOTE.TXT 6.3.9, 4.5.3), of .npy members (NEP 1, version 1.0). Keeps only a part of the file in
// memory. Blocks; one thread. It exists because Debian has no .npz writer for C++, and its ZIP libraries write a member
// sequentially, although the shape at the front of an array is known only at its end.
//
//   auto npz = NpzWriter::Create("rows.npz");
//   npz->BeginArray("users.values", "<f4", 16);   // any number of rows of 16
//   npz->Append(std::as_bytes(row));
//   npz->EndArray();
//   npz->Finish();                                // now the file exists
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
  // Writes a temporary file; Finish renames it to `path`. kIo, with the path.
  static Expected<std::unique_ptr<NpzWriter>> Create(const std::string& path);
  // Removes an unfinished file.
  ~NpzWriter();

  // dtype: "<f4", "<u8", "<u4". columns: items per row; 0: a one-dimensional array.
  Status BeginArray(const std::string& name, const std::string& dtype, std::uint32_t columns);
  // Appends whole rows to the array.
  Status Append(std::span<const std::byte> rows);
  // Completes the array: writes its length into its headers.
  Status EndArray();
  // Completes the file; returns its size in bytes.
  Expected<std::uint64_t> Finish();

 private:
  class Impl;
  explicit NpzWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::inspector
