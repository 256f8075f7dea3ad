"""Rewrites kernels/cuda/*.cu and *.cuh for a C++ compiler: launches become calls, and shared memory whose size the launch
determines becomes a pointer. Fails if a kernel is never launched, because no test covers it. In headers of kernels/
grids of a fixed size become smaller, because their idle threads would take most of the time.
usage: launches.py OUT FILE..."""

import pathlib
import re
import sys


def matching(text, at, opening, closing):
    """Returns the index of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if depth == 0:
            return i
    raise ValueError(f"'{opening}' is not closed: {text[at:at + 60]}")


def begin_of_callee(text, end):
    """Returns where the name with template arguments before `end` begins."""
    i = end
    while text[i - 1].isspace():
        i -= 1
    if text[i - 1] == ">":
        depth = 0
        while True:
            i -= 1
            depth += (text[i] == ">") - (text[i] == "<")
            if depth == 0:
                break
    while re.match(r"[\w:]", text[i - 1]):
        i -= 1
    return i


def rewritten(text, name):
    text = re.sub(r"extern\s+__shared__\s+(\w+)\s+(\w+)\[\];",
                  r"\1* const \2 = static_cast<\1*>(::emulated::DynamicShared());", text)
    # A compiler may read a vector element by element, so alignment is checked where the pointer is cast.
    text = re.sub(r"reinterpret_cast<((?:const )?(?!void)[\w:]+)\*>\(", r"::emulated::Cast<\1>(", text)
    out, at = [], 0
    for launch in re.finditer("<<<", text):
        begin = begin_of_callee(text, launch.start())
        callee = text[begin:launch.start()].strip()
        end_of_config = text.index(">>>", launch.end())
        open_arguments = text.index("(", end_of_config)
        end = matching(text, open_arguments, "(", ")")
        line = text.count("\n", 0, begin) + 1
        # Takes no address of a function template, because its arguments may be deduced from the call.
        identity = f"reinterpret_cast<const void*>({callee})" if callee[0].islower() else "nullptr"
        arguments = text[open_arguments + 1:end]
        out.append(text[at:begin])
        out.append(f'::emulated::Launch("{callee} ({name}:{line})", {identity}, '
                   f"::emulated::Config{{{text[launch.end():end_of_config]}}}, "
                   f"[=](auto... emulated_arguments) {{ {callee}(emulated_arguments...); }}, {arguments})")
        at = end + 1
    return "".join(out) + text[at:]


def smaller_grids(text, name):
    text, found = re.subn(r"(inline constexpr std::size_t kNormParts) = 512;", r"\1 = 4;", text)
    if found != 1:
        raise ValueError(f"{name}: no size of a grid to be made smaller")
    return text


def never_launched(text):
    """Returns the kernels whose name occurs only in their definition."""
    bounds = r"(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s+)?"
    kernels = re.findall(rf"__global__\s+{bounds}void\s+{bounds}(\w+)\(", text)
    if len(kernels) != text.count("__global__"):
        raise ValueError(f"{text.count('__global__')} kernels, of which {len(kernels)} have a name that is found")
    return [kernel for kernel in kernels if len(re.findall(rf"\b{kernel}\b", text)) == 1]


def main(out, files):
    if kernels := never_launched("".join(pathlib.Path(name).read_text() for name in files)):
        raise ValueError(f"nobody launches {', '.join(kernels)}")
    for name in map(pathlib.Path, files):
        of_cuda = name.suffix != ".h"
        path = pathlib.Path(out) / ("kernels/cuda" if of_cuda else "kernels") / name.name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = rewritten(name.read_text(), name.name) if of_cuda else smaller_grids(name.read_text(), name)
        path.write_text(f'#line 1 "{name}"\n' + text)


main(sys.argv[1], sys.argv[2:])
