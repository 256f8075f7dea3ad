#include "kernels/cuda_libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <cstdlib>
#include <ranges>
#include <string_view>

namespace tarn::kernels {
namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The last by name first.
std::vector<std::string> FilesLike(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> files;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return {files.rbegin(), files.rend()};
}

}  // namespace

std::vector<std::string> CudaLibraryFolders() {
  std::vector<std::string> folders;
  for (const auto folder : std::views::split(FromEnvironment("TARN_CUDA_LIBRARIES"), ':'))
    if (!folder.empty()) folders.emplace_back(std::string_view(folder));
  folders.insert(folders.end(), {"", "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64"});
  const std::string home = FromEnvironment("HOME");
  for (const std::string& prefix :
       {FromEnvironment("VIRTUAL_ENV"), FromEnvironment("CONDA_PREFIX"), home.empty() ? home : home + "/.local",
        std::string("/usr/local"), std::string("/usr")})
    if (!prefix.empty()) folders.push_back(prefix + "/lib/python3*/*-packages/nvidia/cu*/lib");
  return folders;
}

Expected<void*> LoadCudaLibrary(const std::string& name, const std::vector<std::string>& folders) {
  std::vector<std::string> places, refused;
  for (const std::string& folder : folders) {
    places.push_back(folder.empty() ? "where the loader looks" : folder);
    for (const std::string& file : folder.empty() ? std::vector{name} : FilesLike(folder + "/" + name)) {
      if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
      if (!folder.empty()) refused.push_back(fmt::format("; {}", dlerror()));
    }
  }
  return Fail(ErrorCode::kUnavailable, fmt::format("no {} in: {}{}; TARN_CUDA_LIBRARIES may name its folder", name,
                                                   fmt::join(places, ", "), fmt::join(refused, "")));
}

}  // namespace tarn::kernels
