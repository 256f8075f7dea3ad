"""The parts of bench/gpu that check results: the GPU tests, alone and under compute-sanitizer."""

import math
import os
import re
import shutil
import time

from tarn_tools import bench, gpu_programs

SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
OF_QUICK_SANITIZER = ("memcheck", "racecheck")
# The tests that --check runs under racecheck. Those of training steps would take minutes each, with the same kernels.
OF_QUICK_RACECHECK = "gpu_kernels_test"
# Kernels of CUB and cuBLAS with known findings, which are not errors of tarn (NVIDIA/cccl 1891, 1903, 2104).
OF_LIBRARIES = re.compile(r"\b(cub|thrust)::|cublas|cutlass|\bnvjet|xmma|\b(ampere|hopper|volta|sm\d\d)_|gemmk?\d|gemv|splitKreduce")


def find_sanitizer(options):
    if options.sanitizer:
        return options.sanitizer
    places = [shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer"]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def why_no_sanitizer(options, sanitizer, tests):
    if options.device == "cpu":
        return "no GPU"
    if not sanitizer:
        return "compute-sanitizer is not installed"
    return "" if tests else "the GPU tests do not exist; tools/build builds them if there is a CUDA toolkit"


def error_count(text):
    """The number of errors and hazards reported by compute-sanitizer, or None."""
    found = re.findall(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", text)
    return sum(int(errors or hazards) for errors, hazards in found) if found else None


def findings_in(text):
    """The number of findings of compute-sanitizer, and how many of them are in kernels of CUDA's libraries. A finding begins
    with a line that names its kind, and names its kernel in that line or a following one."""
    found = of_libraries = 0
    for finding in re.split(r"^=+ (?=\S)", text, flags=re.MULTILINE)[1:]:
        if re.match(r"(COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|Target application)", finding):
            continue
        kernels = re.findall(r"(?:\bin |\bat )(?:0x[0-9a-f]+ in )?(?!block )([A-Za-z_][^\n]*\()", finding)
        if not kernels:
            continue
        found += 1
        of_libraries += all(OF_LIBRARIES.search(kernel) for kernel in kernels)
    return found, of_libraries


def tests_passed(text):
    """The number of passed tests in the output of a test program; 0 if all were skipped or none ran."""
    found = re.findall(r"\[  PASSED  \] (\d+) test", text)
    return sum(map(int, found))


def measure_sanitizer(options, results):
    sanitizer = find_sanitizer(options)
    tests = [options.bin_dir / name for name in gpu_programs.TESTS if (options.bin_dir / name).exists()]
    if why := why_no_sanitizer(options, sanitizer, tests):
        results.skip("sanitizer", why)
        return

    def use(tool, seconds):
        ends = time.monotonic() + seconds
        quick = options.check and tool == "racecheck"
        chosen = [test for test in tests if not quick or test.name == OF_QUICK_RACECHECK]
        try:
            found = [sanitized(options, sanitizer, tool, test, (ends - time.monotonic()) / (len(chosen) - i))
                     for i, test in enumerate(chosen)]
        except bench.Failed as failure:
            results.add({"name": f"sanitizer.{tool}", "skipped": str(failure)})
            raise
        ran = " ".join(f"{test.name}: {passed}" for test, (_, _, passed) in zip(chosen, found))
        left_out = sum(of_libraries for _, of_libraries, _ in found)
        note = {"note": f"{left_out} findings in kernels of CUB and cuBLAS are left out"} if left_out else {}
        results.add({"name": f"sanitizer.{tool}", "value": sum(errors for errors, _, _ in found), "unit": "errors",
                     "settings": {"device": options.gpu, "passed": ran}, **note})

    gpu_programs.each(options, options.sanitizers, use)


def failed_tests(output):
    return sorted(set(re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", output, re.MULTILINE)))


def sanitizer_command(sanitizer, tool, test):
    command = [sanitizer, "--tool", tool, "--error-exitcode", "86"]
    if tool == "memcheck":
        command += ["--report-api-errors", "no"]  # tests provoke CUDA errors
    # Death tests trap on purpose, and large arrays leave the tools no memory for their records of every byte. With few
    # blocks the loops iterate, so that races between iterations are found.
    blocks = ["env", "TARN_TEST_BLOCKS=2"] if tool == "racecheck" else []
    return blocks + command + [test, "--gtest_filter=-*DeathTest*:GpuLargeArrays*"]


def sanitized(options, sanitizer, tool, test, seconds=math.inf):
    """The errors found by a tool in a test program, those found in CUDA's libraries, which do not count, and the number
    of passed tests (skipped ones are not counted)."""
    lines = []
    try:
        command = [*gpu_programs.only_gpu(options), *sanitizer_command(sanitizer, tool, test)]
        gpu_programs.run(command, options, lines.append, seconds)
    except bench.Failed as failure:
        if not error_count("".join(lines)):
            raise bench.Failed(f"{test.name} under {tool}: {failure}") from failure
    if failed := failed_tests("".join(lines)):
        raise bench.Failed(f"{test.name} under {tool}: {', '.join(failed)} failed")
    reported, passed = error_count("".join(lines)), tests_passed("".join(lines))
    if reported is None:
        raise bench.Failed(f"{test.name}: {tool} did not report the number of errors")
    if passed == 0:
        raise bench.Failed(f"{test.name} under {tool}: no test passed, all were skipped or none ran")
    _, of_libraries = findings_in("".join(lines))
    return max(0, reported - of_libraries), of_libraries, passed


def measure_tests(options, results):
    """Runs the GPU tests, and every program at small sizes."""

    def test_one(name, seconds):
        lines, failure = [], None
        try:
            command = [*gpu_programs.only_gpu(options), options.bin_dir / name, "--gtest_brief=1"]
            gpu_programs.run(command, options, lines.append, seconds)
        except bench.Failed as why:
            failure = why
        output = "".join(lines)
        failed = failed_tests(output)
        if failed or not failure and tests_passed(output):
            note = {"note": "failed: " + " ".join(failed)} if failed else {}
            results.add({"name": f"tests.{name}", "value": len(failed), "unit": "failed",
                         "settings": {"device": options.gpu, "passed": tests_passed(output)}, **note})
        if failure or not tests_passed(output):
            raise failure or bench.Failed(f"{name}: no test passed, all were skipped or none ran")

    def run_tiny(_, seconds):
        lines = []
        gpu_programs.run([options.bin_dir / "gpu_bench", "--device", options.device, "--tiny"], options, lines.append, seconds)
        results.add({"name": "tests.tiny", "value": len(lines), "unit": "figures", "settings": {"device": options.gpu}})

    on_cpu = options.device == "cpu"
    tests = [name for name in gpu_programs.TESTS if not on_cpu and (options.bin_dir / name).exists()]
    for name in gpu_programs.TESTS:
        if name not in tests:
            why = "no GPU" if on_cpu else "it does not exist; tools/build builds it if there is a CUDA toolkit"
            results.add({"name": f"tests.{name}", "skipped": why})
    gpu_programs.each(options, [(test_one, name) for name in tests] + [(run_tiny, "")], lambda what, seconds: what[0](what[1], seconds))
