// Shows in which places CUDA's libraries are searched, and in which order, which of several files is used, and that the
// error names all places and the reason why a file cannot be used. The libraries here are links to the math library.
#include "kernels/cuda_libraries.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tarn::kernels {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libtarn-test.so.13";

class CudaLibrariesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    top_ = fs::path(::testing::TempDir()) / ("cuda_libraries_test-" + std::to_string(::getpid()));
    fs::create_directories(top_);
  }
  void TearDown() override { fs::remove_all(top_); }

  std::string Folder(const std::string& name) {
    fs::create_directories(top_ / name);
    return top_ / name;
  }
  std::string With(const std::string& name) {
    Dl_info math = {};
    EXPECT_NE(dladdr(reinterpret_cast<void*>(static_cast<double (*)(double)>(std::cos)), &math), 0);
    fs::create_symlink(fs::canonical(math.dli_fname), fs::path(Folder(name)) / kName);
    return top_ / name;
  }

  fs::path top_;
};

TEST_F(CudaLibrariesTest, TheFirstPlaceWithTheLibraryIsUsed) {
  EXPECT_TRUE(LoadCudaLibrary(kName, {"", Folder("empty"), With("there")}).has_value());
  EXPECT_TRUE(LoadCudaLibrary(kName, {(top_ / "th*").string()}).has_value()) << "places are patterns";
}

TEST_F(CudaLibrariesTest, ALibraryThatTheLoaderFindsNeedsNoPlace) {
  EXPECT_TRUE(LoadCudaLibrary("libm.so.6", {""}).has_value());
}

TEST_F(CudaLibrariesTest, TheLastOfSeveralByNameIsTriedFirst) {
  const std::string older = With("cuda-13.0"), newer = Folder("cuda-13.1");
  std::ofstream(newer + "/" + kName) << "no library";
  const auto both = LoadCudaLibrary(kName, {(top_ / "cuda-*").string()});
  EXPECT_TRUE(both.has_value()) << "the older one does, if the newer one does not";
  fs::remove(older + "/" + kName);
  const auto broken = LoadCudaLibrary(kName, {(top_ / "cuda-*").string()});
  ASSERT_FALSE(broken.has_value());
  EXPECT_NE(broken.error().message.find(newer + "/" + kName), std::string::npos) << broken.error().message;
}

TEST_F(CudaLibrariesTest, AnErrorNamesAllPlaces) {
  const std::string one = Folder("one"), two = Folder("two");
  const auto nowhere = LoadCudaLibrary(kName, {one, "", two});
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(nowhere.error().message, std::string("no ") + kName + " in: " + one + ", the loader's search path, " + two +
                                         "; TARN_CUDA_LIBRARIES may name its folder");
}

// The loader gets a path here, because its folders have no such library.
TEST_F(CudaLibrariesTest, AnErrorSaysWhyTheLoadersLibraryCannotBeLoaded) {
  const std::string path = Folder("broken") + "/" + kName;
  const auto absent = LoadCudaLibrary(path, {""});
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().message,
            "no " + path + " in: the loader's search path; TARN_CUDA_LIBRARIES may name its folder");
  std::ofstream(path) << "cut off";
  const auto broken = LoadCudaLibrary(path, {""});
  ASSERT_FALSE(broken.has_value());
  EXPECT_NE(broken.error().message.find("the loader's search path; " + path + ": "), std::string::npos)
      << broken.error().message;
}

TEST_F(CudaLibrariesTest, ALibraryWithoutTheNeededSymbolsIsSkipped) {
  const std::string older = With("cuda-13.0"), newer = With("cuda-13.1");
  int asked = 0;
  const auto second = LoadCudaLibrary(kName, {(top_ / "cuda-*").string()}, [&](void* library) {
    EXPECT_NE(dlsym(library, "cos"), nullptr);
    return ++asked == 1 ? "tarnSolve" : "";
  });
  EXPECT_TRUE(second.has_value());
  EXPECT_EQ(asked, 2);
  const auto none = LoadCudaLibrary(kName, {older, newer}, [](void*) { return "tarnSolve"; });
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find(older + "/" + kName + " has no tarnSolve; " + newer), std::string::npos)
      << none.error().message;
}

TEST_F(CudaLibrariesTest, ThePlacesAreInOrder) {
  const std::string path = std::getenv("PATH");
  ::setenv("TARN_CUDA_LIBRARIES", "/a:/b", 1);
  ::setenv("VIRTUAL_ENV", "/venv", 1);
  ::unsetenv("PATH");
  const std::vector<std::string> folders = CudaLibraryFolders();
  ::setenv("PATH", path.c_str(), 1);
  ::unsetenv("TARN_CUDA_LIBRARIES");
  ::unsetenv("VIRTUAL_ENV");
  ASSERT_GE(folders.size(), 6u);
  EXPECT_EQ(std::vector(folders.begin(), folders.begin() + 6),
            (std::vector<std::string>{"/a", "/b", "", "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64",
                                      "/venv/lib/python3*/*-packages/nvidia/cu*/lib"}));
  EXPECT_EQ(folders.back(), "/usr/lib/python3*/*-packages/nvidia/cu*/lib");
  EXPECT_EQ(CudaLibraryFolders().front(), "") << "without the variable the loader is asked first";
}

// A machine may have torch in an environment that is on the PATH but not activated.
TEST_F(CudaLibrariesTest, PythonsOnThePathArePlaces) {
  const std::string bin = Folder("env/bin"), path = std::getenv("PATH");
  fs::create_symlink("/bin/sh", bin + "/python3");
  ::setenv("PATH", ("relative:" + Folder("none/bin") + ":" + bin + ":" + bin + ":" + path).c_str(), 1);
  const std::vector<std::string> folders = CudaLibraryFolders();
  ::setenv("PATH", path.c_str(), 1);
  const auto times = [&](const std::string& prefix) {
    return std::ranges::count(folders, prefix + "/lib/python3*/*-packages/nvidia/cu*/lib");
  };
  EXPECT_EQ(times(top_ / "env"), 1);
  EXPECT_EQ(times(top_ / "none"), 0) << "it has no Python";
  EXPECT_EQ(times("/usr"), 1);
}

}  // namespace
}  // namespace tarn::kernels
