"""tools/bundle: makes an archive of the programs, their shared libraries, tools and examples."""

import argparse
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

from tarn_tools import bench, called, errors, launch_options

ROOT = launch_options.ROOT
NAME = "tarn"

# Libraries of every x86-64 Linux: the C library and the loader, which must match each other and the kernel.
OF_THE_C_LIBRARY = re.compile(r"^(ld-linux-x86-64|lib(c|m|pthread|dl|rt|util|resolv|anl|nss_\w+|mvec))\.so")
OF_THE_DRIVER = re.compile(r"^lib(cuda|nvidia-\w+|nvcuvid)\.so")
OF_CUDA = re.compile(r"^lib(cublas|cublasLt|cudart|nvJitLink|nvrtc\S*|cusparse|curand)\.so")
# The library that kernels/cuda/cublas_lt.cc loads by name, if built with CUDA. The NUL excludes the parts of the name
# that compilers also store.
LOADED_BY_NAME = re.compile(rb"(libcublasLt\.so\.[0-9]+)\0")
# Libraries of the compiler. The target's own versions have precedence: its C library may be too old for ours.
OF_THE_COMPILER = {"libstdc++.so.6", "libgcc_s.so.1"}
ONLY_FOR_TESTS = {"tarn-garbage", "tarn-sim"}  # and libraries, which tests preload
LIBRARY = "lib/libtarn.so"  # for programs in other languages (python/); relative to the parent of bin/
# They verify the computations of the target's GPU: bench/gpu runs them under compute-sanitizer.
GPU_TESTS = {"gpu_kernels_test", "gpu_stepper_test", "gpu_train_test"}
BENCHES = {"single_process", "row_store", "row_store_bench", "cut_bench", "kernels_bench", "model_step", "gpu_bench",
           "scale_model", "tiered", "eviction_policies"}
# The programs to measure a GPU (bench/gpu), in a bundle that must have code for it and be small.
OF_GPU = GPU_TESTS | {"gpu_bench", "model_step", "tarn-generate", "tarn-scheduler", "tarn-server", "tarn-worker"}
GPU_MB_MAX = 50  # packed
ARCHITECTURE = 90  # machine code for H100 and H200, and PTX for later GPUs
FILES = ["README.md", "LICENSE", "docs", "examples", "bench", "python", "tools/launch", "tools/report",
         "tools/inspect", "tools/checkpoint", "tools/predict", "tools/accuracy", "tools/lab", "tools/replay",
         "tools/tarn_tools"]
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".mypy_cache", "*.cc", "CMakeLists.txt", "results")

DESCRIPTION = """\
Builds the programs and packs them with their shared libraries, libtarn.so, the Python client, the tools, the examples
and the documents. The bundle runs unpacked on another x86-64 Linux with at least the C library version that is printed:

  tools/bundle && scp tarn-bundle.tar.xz node: && ssh node 'tar xf tarn-bundle.tar.xz && tarn/tools/launch --help'

tools/launch needs Python 3.11 there, but not on the hosts of --hosts. The programs in tarn/bin need libstdc++ of GCC 12
or newer. If the target lacks it and its C library is Debian 12's or newer, use that in tarn/lib/fallback: tools/launch
does so automatically; set LD_LIBRARY_PATH=tarn/lib/fallback for programs that you start by hand.

A GPU needs driver 580 or newer, and cuBLAS of CUDA 13: in the bundle or, with --slim, on the target in
$TARN_CUDA_LIBRARIES, the loader's search path, /usr/local/cuda*/lib64 or pip's nvidia-cublas. A worker without a GPU
needs neither. tarn/bench/gpu measures the GPU; --gpu packs only the files that it needs.
"""


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog="tools/bundle", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="tarn-bundle.tar.xz", metavar="FILE", help="archive to write (default: %(default)s); .tar.gz is faster to pack")
    parser.add_argument("--slim", action="store_true", help="omit CUDA's libraries, which the target must have")
    parser.add_argument("--gpu", action="store_true",
                        help="only what bench/gpu needs, slim; fails if there is no CUDA in it, no machine code of "
                             f"sm_{ARCHITECTURE}, no PTX, or more than {GPU_MB_MAX} MB")
    parser.add_argument("--with-tests", action="store_true", help="add the test programs and their data")
    parser.add_argument("--bin-dir", metavar="DIR", help="pack the programs in this folder without building them (default: build/release/bin)")
    options = parser.parse_args(argv)
    if not options.out.endswith((".tar.xz", ".tar.gz")):
        parser.error(f"--out {options.out}: expected a name that ends in .tar.xz or .tar.gz")
    if options.gpu and options.with_tests:
        parser.error("--gpu and --with-tests: expected only one of them")
    options.slim = options.slim or options.gpu
    return options


def programs_in(folder, with_tests):
    found = [p for p in sorted(folder.iterdir()) if p.is_file() and os.access(p, os.X_OK)]
    if with_tests:
        return found
    kept = BENCHES | GPU_TESTS
    ours = [p for p in found if p.name.startswith("tarn-") and p.suffix != ".so"]
    return [p for p in found if p.name in kept or (p in ours and p.name not in ONLY_FOR_TESTS)]


def libraries_of(programs, slim):
    """{file name: path} of the libraries that the loader would use for them. Raises LookupError for a missing one."""
    found = {}
    for program in programs:
        # Library paths of the environment must not replace the libraries that this build is linked with.
        environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, env=environment).stdout
        for line in listed.splitlines():
            name, arrow, rest = line.strip().partition(" => ")
            if not arrow or OF_THE_C_LIBRARY.match(name) or OF_THE_DRIVER.match(name):
                continue
            if slim and OF_CUDA.match(name):
                continue
            if "not found" in rest:
                raise LookupError(f"{program.name} needs {name}, which is not on this machine")
            found[name] = pathlib.Path(rest.split(" (0x")[0]).resolve()
    return found


def loaded_by_name(programs):
    """The names of the libraries that programs load at run time when they use a GPU."""
    return {name.decode() for program in programs for name in LOADED_BY_NAME.findall(program.read_bytes())}


def code_for_gpus(data):
    """The GPU code in a program: ("ptx" or "sm", architecture) pairs, from the headers that nvcc embeds."""
    found, at = set(), 0
    while (at := data.find(struct.pack("<IH", 0xBA55ED50, 1), at)) >= 0:
        header_size, size = struct.unpack_from("<HQ", data, at + 6)
        entry, end = at + header_size, at + header_size + size
        while entry + 32 <= min(end, len(data)):
            kind, _, entry_header_size, entry_size = struct.unpack_from("<HHIQ", data, entry)
            if kind not in (1, 2) or entry_header_size == 0:
                break
            found.add(({1: "ptx", 2: "sm"}[kind], *struct.unpack_from("<I", data, entry + 28)))
            entry += entry_header_size + entry_size
        at += 4
    return found


def check_for_gpu(programs):
    """Raises LookupError if a bundle of these programs could not measure on a GPU."""
    names = {program.name for program in programs}
    if missing := sorted(OF_GPU - names):
        raise LookupError(f"--gpu: {', '.join(missing)} not found: built without CUDA? (tools/install cuda)")
    for program in programs:
        code = code_for_gpus(program.read_bytes())
        if program.name in GPU_TESTS | {"gpu_bench", "model_step", "tarn-worker"}:
            if not code or not loaded_by_name([program]):
                raise LookupError(f"--gpu: {program.name} is built without CUDA (tools/install cuda)")
            if ("sm", ARCHITECTURE) not in code:
                raise LookupError(f"--gpu: {program.name} has no machine code of sm_{ARCHITECTURE}")
            if not any(kind == "ptx" and version <= ARCHITECTURE for kind, version in code):
                raise LookupError(f"--gpu: {program.name} has no PTX of compute_{ARCHITECTURE} or older")


def search_path(program):
    """The directories that the loader searches first for the program."""
    entries = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    paths = re.findall(r"Library rpath: \[(.*)\]", entries)
    return [pathlib.Path(p) for path in paths for p in path.split(":") if not p.startswith("$")]


def cuda_libraries_of(programs):
    """Like libraries_of, for libraries loaded by name and their dependencies. Raises LookupError for a missing one."""
    found = {}
    for program in programs:
        for name in loaded_by_name([program]):
            path = next((p / name for p in search_path(program) if (p / name).exists()), None)
            if path is None:
                raise LookupError(f"{program.name} loads {name}, which is not on this machine; --slim leaves it out")
            found |= {name: path.resolve()} | libraries_of([path], slim=False)
    return found


def glibc_needed(paths):
    """The newest version of the C library that any of them requires, such as '2.34'."""
    needed = subprocess.run(["readelf", "-V", *paths], capture_output=True, text=True, check=True).stdout
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"Name: GLIBC_([0-9.]+)", needed)}
    return ".".join(map(str, max(versions)))


def strip(path):
    """Removes debugging information; files that strip does not support are unchanged."""
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", path], check=False, stderr=subprocess.DEVNULL)


def copy_tree(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=LEFT_OUT)
    else:
        shutil.copy2(source, target)


def fill(folder, programs, options):
    """Copies the files of the bundle to `folder`; returns its programs and libraries."""
    library = programs[0].parent.parent / LIBRARY
    own = {library.name: library} if library.exists() and not options.gpu else {}
    libraries = own | libraries_of([*programs, *own.values()], options.slim)
    if not options.slim:
        libraries |= cuda_libraries_of(programs)
    for sub in ("bin", "lib/fallback"):
        (folder / sub).mkdir(parents=True)
    for program in programs:
        shutil.copy2(program, folder / "bin" / program.name)
        strip(folder / "bin" / program.name)
    for name, path in libraries.items():
        copy = folder / ("lib/fallback" if name in OF_THE_COMPILER else "lib") / name
        shutil.copy2(path, copy)
        copy.chmod(0o644)
        strip(copy)
    for name in FILES + (["tests"] if options.with_tests else []):
        copy_tree(ROOT / name, folder / name)
    (folder / "COMMIT").write_text(bench.commit() + "\n")
    return libraries


@called.interruptible("tools/bundle")
def main(argv):
    options = parse_arguments(argv)
    try:
        if options.bin_dir:
            folder = pathlib.Path(options.bin_dir)
        else:
            if options.gpu and not (ROOT / "build/cuda-toolkit").exists() and not shutil.which("nvcc"):
                raise LookupError("--gpu: no CUDA toolkit here (tools/install cuda)")
            subprocess.run([ROOT / "tools/build", "release", *(sorted(OF_GPU) if options.gpu else [])], check=True)
            folder = ROOT / "build/release/bin"
        programs = programs_in(folder, options.with_tests)
        if not programs:
            raise LookupError(f"no programs in {folder}")
        if options.gpu:
            programs = [program for program in programs if program.name in OF_GPU]
            check_for_gpu(programs)
        with tempfile.TemporaryDirectory(prefix="tarn-bundle-") as scratch:
            top = pathlib.Path(scratch) / NAME
            libraries = fill(top, programs, options)
            glibc = glibc_needed([*(top / "bin").iterdir(), *(top / "lib").glob("*.so*")])
            part = pathlib.Path(f"{options.out}.part")
            with tarfile.open(part, "w:xz" if options.out.endswith(".xz") else "w:gz") as archive:
                archive.add(top, NAME)
            if options.gpu and part.stat().st_size > GPU_MB_MAX * 1_000_000:
                size = part.stat().st_size
                part.unlink()
                raise LookupError(f"--gpu: {size / 1e6:.1f} MB packed, more than {GPU_MB_MAX}")
            part.rename(options.out)
    except (LookupError, OSError, subprocess.CalledProcessError) as error:
        print(f"tools/bundle: {errors.message(error)}", file=sys.stderr)
        return 1
    size = pathlib.Path(options.out).stat().st_size
    print(f"{options.out}: {len(programs)} programs, {len(libraries)} libraries, {size / 1e6:.1f} MB")
    cuda = "without CUDA (tools/install cuda)"
    if loaded_by_name(programs):
        cuda = "with CUDA, whose libraries the target has" if options.slim else "with CUDA"
    print(f"  {cuda}; runs where the C library is glibc {glibc} or newer")
    print(f"  tar xf {os.path.basename(options.out)} && {NAME}/tools/launch {NAME}/examples/criteo-fm.toml --help")
    return 0
