#!/usr/bin/env python3
"""Inserts known faults into the CUDA code, one at a time, and shows that the tests on the emulated GPU find each.

  tests/emulated/mutants.py                   every fault, one after the other
  tests/emulated/mutants.py missing-event-wait
  tests/emulated/mutants.py --check           checks only that every fault can still be inserted

Needs a build (tools/build release): compiles the files that a fault changes and links the test with them. Exit status 1
if a fault is not found.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS_MAX = 300

KERNELS, STEPPER, TRAIN = "emulated_kernels_test", "emulated_stepper_test", "emulated_train_test"
# name, file, text that occurs in it once, its replacement, files to compile, test program, filter, environment
CUDA = "kernels/cuda/"
MUTANTS = [
    ("missing-event-wait", "worker/train/device_arrays.cc", "    stream_.WaitFor(*copy_stream_);\n    return {};", "    return {};",
     ["worker/train/device_arrays.cc"], STEPPER, "*AgreesWithTheCpu/dlrm", {}),
    ("gradients-fetched-too-early", "worker/train/device_arrays.cc", "    copy_stream_->WaitFor(stream_);\n", "",
     ["worker/train/device_arrays.cc"], STEPPER, "*AgreesWithTheCpu/dlrm", {}),
    ("event-not-recorded", CUDA + "stream.cc",
     '  native_->Note(cudaEventRecord(first.given, first.stream), "record an event");\n', "",
     [CUDA + "stream.cc"], STEPPER, "*AgreesWithTheCpu/dlrm", {}),
    ("copy-from-pageable-memory", "worker/train/device_batch.h",
     "    if (!items.empty()) std::memcpy(host.data(), items.data(), items.size_bytes());\n    ToDevice(stream);",
     "    kernels::CopyToDevice(stream, items.data(), bytes, device.data());",
     ["worker/train/device_arrays.cc"], STEPPER, "*AgreesWithTheCpu/dlrm", {}),
    ("graph-with-stale-pointers", CUDA + "graph.cc", "return stream.native().memory_version;", "return stream.native().memory_version * 0;",
     [CUDA + "graph.cc"], STEPPER, "*RecordedSteps*/dlrm:*RecordedSteps*/deepfm", {}),
    ("rows-used-before-they-come", "worker/train/device_place.cc", "{ user->WaitFor(*stream_); }", "{ (void)user; }",
     ["worker/train/device_place.cc"], TRAIN, "GpuHotTable*:*HotRowsChangeNoBit*/*", {}),
    ("number-read-before-it-is-there", "worker/train/device_planner.cc",
     "    TARN_RETURN_IF_ERROR(stream_->Wait());\n    const std::size_t unique", "    const std::size_t unique",
     ["worker/train/device_planner.cc"], TRAIN, "*Planner*", {}),
    ("barrier-missing-behind-a-sum", CUDA + "block_sum.cuh", "  __syncthreads();\n  return values[0];", "  return values[0];",
     [CUDA + "elementwise.cu"], KERNELS, "*Clipping*", {}),
    ("barrier-missing-between-samples", CUDA + "interaction.cu",
     "    __syncthreads();  // before the next sample overwrites them\n", "",
     [CUDA + "interaction.cu"], KERNELS, "GpuTest.Interaction*", {"TARN_TEST_BLOCKS": "2"}),
    ("barrier-missing-between-warps", CUDA + "hot_rows.cu", "  __syncthreads();\n  if (threadIdx.x != 0) return;",
     "  if (threadIdx.x != 0) return;", [CUDA + "hot_rows.cu"], KERNELS, "GpuHotRowsTest.*", {}),
    ("barrier-that-not-all-reach", CUDA + "gemm.cu", "  sums[strip][tile_column] = sum;\n  __syncthreads();",
     "  sums[strip][tile_column] = sum;\n  if (column >= columns) return;\n  __syncthreads();",
     [CUDA + "gemm.cu"], KERNELS, "GpuEpilogue*:GpuGemm*", {}),
    ("lanes-do-not-wait", CUDA + "optimizer.cu", ".Store(shared, g);\n    __syncwarp();", ".Store(shared, g);",
     [CUDA + "optimizer.cu"], KERNELS, "GpuTest.Optimizers", {}),
    ("wrong-lanes-in-a-mask", CUDA + "tile.cuh", "return 0xffu << (Lane() - TileLane());", "return 0xffu;",
     [CUDA + "fm.cu"], KERNELS, "*FactorizationMachine*", {}),
    ("off-by-one-in-a-tail", CUDA + "convert.cu",
     "n - done, [=] __device__(std::size_t i) { out[done + i] = half(", "n - done - 1, [=] __device__(std::size_t i) { out[done + i] = half(",
     [CUDA + "convert.cu"], KERNELS, "*SixteenBit*", {}),
    ("one-thread-too-many", CUDA + "grid.cuh", "for (std::size_t i = FirstThread(); i < n; i += Threads()) f(i);",
     "for (std::size_t i = FirstThread(); i <= n; i += Threads()) f(i);",
     [CUDA + "positions.cu"], KERNELS, "*Position*:GpuSparseTest.*Key*", {}),
    ("misaligned-vector-load", CUDA + "elementwise.cu", "IsAligned16(in) && IsAligned16(out), MapTwo", "IsAligned16(out), MapTwo",
     [CUDA + "elementwise.cu"], KERNELS, "*NotAligned*:*FlatArrays*", {}),
    ("wrong-leading-dimension", CUDA + "gemm_plan.cc", "return MakeLayout(matrix.element, rows, columns, matrix.stride, out);",
     "return MakeLayout(matrix.element, rows, columns, rows, out);",
     [CUDA + "gemm_plan.cc"], KERNELS, "GpuGemm*", {}),
    ("mask-without-alignment", CUDA + "gemm_plan.cc", "ReluMaskStride(p.shape.n) * 32)", "(p.shape.n + 31) / 32 * 32)",
     [CUDA + "gemm_plan.cc"], KERNELS, "GpuGemm*:GpuEpilogue*", {}),
    ("bias-without-alignment", CUDA + "gemm_plan.cc",
     "  if (HasBias(p.epilogue) && AlignmentOf(p.bias) < kEpilogueAlignment) return false;\n", "",
     [CUDA + "gemm_plan.cc"], KERNELS, "GpuGemm*:GpuEpilogue*", {}),
    ("two-blocks-race", CUDA + "gemm.cu", "partial[blockIdx.y * columns + column] = sum;", "partial[column] = sum;",
     [CUDA + "gemm.cu"], KERNELS, "GpuEpilogue*:GpuGemm*", {}),
    ("index-of-32-bits", CUDA + "rows.cu", "return Move{in + std::size_t{index[i]} * dim, out + i * dim}",
     "return Move{in + index[i] * dim, out + i * dim}",
     [CUDA + "rows.cu"], KERNELS, "GpuLargeArrays*", {}),
    ("shared-memory-not-asked-for", CUDA + "interaction.cu",
     "return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, most);",
     "return cudaSuccess;", [CUDA + "interaction.cu"], KERNELS, "GpuTest.Interaction*", {}),
    ("shared-memory-too-small", CUDA + "interaction.cu",
     "shared_bytes(std::size_t{vectors} * (held.stride + std::size_t{bands} * kBandFloats) * sizeof(float))",
     "shared_bytes(std::size_t{vectors} * held.stride * sizeof(float))",
     [CUDA + "interaction.cu"], KERNELS, "GpuTest.Interaction*", {}),
]


class Build:
    """The commands of a build, with which parts of a test are made anew."""

    def __init__(self, folder):
        self.folder = folder
        self.commands = {}
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            if "/emulated_" in entry.get("output", entry["command"]):
                self.commands[entry["file"]] = shlex.split(entry["command"])

    def compile(self, file, mutated, scratch):
        """The object of a source file; `mutated` is a folder that is looked into before the others."""
        of_cuda = file.endswith(".cu")
        known = str(self.folder / "tests/emulated/rewritten" / file) if of_cuda else str(ROOT / file)
        command = [word for word in self.commands[known] if word not in ("-MD",)]
        source = mutated / file if (mutated / file).exists() else pathlib.Path(known)
        output = scratch / (pathlib.Path(file).name + ".o")
        at = command.index("-o")
        object_before = command[at + 1]
        command[at + 1], command[command.index("-c") + 1] = str(output), str(source)
        first_include = next(i for i, word in enumerate(command) if word.startswith("-I"))
        command.insert(first_include, f"-I{mutated}")
        subprocess.run(command, cwd=self.folder, check=True)
        return object_before, output

    def link(self, program, objects, output):
        lines = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", program], capture_output=True, text=True,
                               check=True).stdout.splitlines()
        command = next(line for line in reversed(lines) if f"-o bin/{program}" in line).replace(f"-o bin/{program}", f"-o {output}")
        for before, after in objects:
            if before not in command:  # CMake's own way to write a path
                before = before.replace(".dir/", ".dir/./")
            if before not in command:
                raise ValueError(f"{program} is not linked with {before}")
            command = command.replace(before, str(after))
        subprocess.run(command, cwd=self.folder, check=True, shell=True)


def found_by(build, mutant, scratch):
    """Returns how the test shows the fault; None if it does not."""
    _, file, old, new, sources, program, tests, more = mutant
    mutated = scratch / "mutated"
    text = (ROOT / file).read_text().replace(old, new)
    (mutated / file).parent.mkdir(parents=True)
    plain = scratch / "plain" / pathlib.Path(file).name
    plain.parent.mkdir()
    if file.startswith(CUDA) and file.endswith((".cu", ".cuh")):
        plain.write_text(text)
        subprocess.run([sys.executable, ROOT / "tests/emulated/launches.py", mutated, plain], check=True)
    else:
        (mutated / file).write_text(text)
    build.link(program, [build.compile(source, mutated, scratch) for source in sources], scratch / program)
    for seed in ("0", "1", "2"):
        environment = {**os.environ, **more, "TARN_EMULATED_SEED": seed}
        try:
            done = subprocess.run([scratch / program, f"--gtest_filter={tests}", "--gtest_brief=1"], capture_output=True,
                                  text=True, timeout=SECONDS_MAX, env=environment)
        except subprocess.TimeoutExpired:
            return f"seed {seed}: does not end"
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("emulated GPU: ")]
            failed = [line for line in done.stdout.splitlines() if line.startswith("[  FAILED  ]")]
            return f"seed {seed}: " + (said or failed or done.stdout.splitlines()[-1:] or ["?"])[0][:200]
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="which faults (all)")
    parser.add_argument("--check", action="store_true", help="insert none; exit 1 if a fault's text is missing")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="of the tests (%(default)s)")
    options = parser.parse_args()
    stale = [f"{mutant[0]}: {mutant[1]} holds its text {(ROOT / mutant[1]).read_text().count(mutant[2])} times, must be once"
             for mutant in MUTANTS if (ROOT / mutant[1]).read_text().count(mutant[2]) != 1]
    if stale:
        sys.exit("\n".join(stale))
    if options.check:
        return 0
    build, missed = Build(options.build.resolve()), 0
    for mutant in MUTANTS:
        if options.names and mutant[0] not in options.names:
            continue
        with tempfile.TemporaryDirectory(prefix="tarn-mutant-") as scratch:
            found = found_by(build, mutant, pathlib.Path(scratch))
        print(f"{mutant[0]:34} {found or 'not found'}", flush=True)
        missed += found is None
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
