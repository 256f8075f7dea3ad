#include "kernels/cuda_libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <ranges>
#include <string_view>

namespace tarn::kernels {
namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// PREFIX of every PREFIX/bin/python3 on $PATH, including virtual environments that are not activated.
std::vector<std::string> PythonsOnPath() {
  constexpr std::string_view kBin = "/bin";
  std::vector<std::string> prefixes;
  for (const auto part : std::views::split(FromEnvironment("PATH"), ':')) {
    std::string folder{std::string_view(part)};
    while (folder.ends_with('/')) folder.pop_back();
    if (folder.ends_with(kBin) && access((folder + "/python3").c_str(), X_OK) == 0)
      prefixes.push_back(folder.substr(0, folder.size() - kBin.size()));
  }
  return prefixes;
}

// Files that match, in descending order of their names.
std::vector<std::string> FilesLike(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> files;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return {files.rbegin(), files.rend()};
}

// Why the loader could not load a library of that name; empty if it found none.
std::string WhyTheLoaderFailed(const std::string& name) {
  const std::string why = dlerror();
  return why.starts_with(name + ": cannot open shared object file: No such file") ? "" : why;
}

}  // namespace

std::vector<std::string> CudaLibraryFolders() {
  std::vector<std::string> folders;
  for (const auto folder : std::views::split(FromEnvironment("TARN_CUDA_LIBRARIES"), ':'))
    if (!folder.empty()) folders.emplace_back(std::string_view(folder));
  folders.insert(folders.end(), {"", "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64"});
  std::vector<std::string> prefixes = {FromEnvironment("VIRTUAL_ENV"), FromEnvironment("CONDA_PREFIX")};
  std::ranges::copy(PythonsOnPath(), std::back_inserter(prefixes));
  if (const std::string home = FromEnvironment("HOME"); !home.empty()) prefixes.push_back(home + "/.local");
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr"});
  for (const std::string& prefix : prefixes) {
    const std::string pattern = prefix + "/lib/python3*/*-packages/nvidia/cu*/lib";
    if (!prefix.empty() && std::ranges::find(folders, pattern) == folders.end()) folders.push_back(pattern);
  }
  return folders;
}

Expected<void*> LoadCudaLibrary(const std::string& name, const std::vector<std::string>& folders,
                                const std::function<std::string(void*)>& lacks) {
  std::vector<std::string> places, refused;
  for (const std::string& folder : folders) {
    places.push_back(folder.empty() ? "the loader's search path" : folder);
    for (const std::string& file : folder.empty() ? std::vector{name} : FilesLike(fmt::format("{}/{}", folder, name))) {
      void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      std::string why;
      if (library == nullptr)
        why = folder.empty() ? WhyTheLoaderFailed(file) : dlerror();
      else if (const std::string missing = lacks ? lacks(library) : ""; !missing.empty())
        why = fmt::format("{} has no {}", file, missing);
      else
        return library;
      if (library != nullptr) dlclose(library);
      if (!why.empty()) refused.push_back("; " + why);
    }
  }
  return Fail(ErrorCode::kUnavailable, fmt::format("no {} in: {}{}; TARN_CUDA_LIBRARIES may name its folder", name,
                                                   fmt::join(places, ", "), fmt::join(refused, "")));
}

}  // namespace tarn::kernels
