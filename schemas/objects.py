"""Makes the C++ messages of what flatc makes of a schema.

  objects.py SCHEMA FLATC_HEADER OUT_FOLDER

flatc --gen-object-api puts everything into one header: a C++ struct ("object") for each table, the classes that read and
write bytes, and the conversions between them. Everybody handles messages and few convert them, so this takes it apart.
OUT_FOLDER gets, for wire.fbs:

  wire_objects.h    each table T of the schema as a plain struct tarn::T, and the enums that they use, without
                    FlatBuffers. Of a union: a std::variant of its types, and their names, under the union's name
  wire_generated.h  flatc's header, whose objects are those
  wire_limits.inc   the constants of core/limits.h that the attributes `limit` and `each` name, as {"NAME", VALUE},

flatc 2.0.8 holds tables in objects by unique_ptr; here they are members and items of vectors. Of a table with the
attribute native_table the struct is hand-written, as are its UnPackTo and CreateT.
"""

import pathlib
import re
import sys

NATIVES = "core/wire_values.h"  # what objects are made of
HELD = r"std::unique_ptr<tarn::wire::(\w+)T>"


def schema_text(path):
    """The schema and those that it includes, without comments and their repetitions."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    for included in re.findall(r'include "([\w.]+)";', text):
        text += schema_text(path.parent / included)
    return text


def block(text, begin):
    """The text from a line that matches to the next line that begins with a closing brace."""
    return re.search(rf"^{begin}.*?^}}[^\n]*\n", text, re.S | re.M)[0]


def object_struct(name, flatc):
    """flatc's object of a table as a plain struct."""
    lines = [f"struct {name} {{"]
    for line in block(flatc, f"struct {name}T : public flatbuffers::NativeTable {{").splitlines()[1:]:
        if re.match(rf"  {name}T\b", line):  # constructors, which copy what is held by unique_ptr
            continue
        line = re.sub(r"typedef (\w+) TableType;", r"using TableType = wire::\1;  // reads and writes it", line)
        line = re.sub(HELD, r"\1", line)
        line = re.sub(r"tarn::wire::(\w+)T\b", r"\1", line)
        line = re.sub(r"flatbuffers::(Optional|nullopt)", lambda match: "std::" + match[1].lower(), line)
        lines.append(line)
    return "\n".join(lines).replace("tarn::wire::", "").replace("tarn::", "")


def objects_header(stem, includes, flatc, tables, enums, unions):
    out = [f"// The tables of schemas/{stem}.fbs, made by schemas/objects.py: what the fields mean is said there.",
           "#pragma once", "", "#include <array>", "#include <cstdint>", "#include <optional>", "#include <string>",
           "#include <string_view>", "#include <variant>", "#include <vector>", "", f'#include "{NATIVES}"']
    out += [f'#include "{included}_objects.h"' for included in includes]
    out += ["", "namespace tarn::wire {", *(f"struct {name};" for name in tables), "}", "", "namespace tarn {", ""]
    out += [block(flatc, f"enum class {enum} ") for enum in enums]
    out += [object_struct(name, flatc) + "\n" for name in tables]
    for union, types in unions.items():
        out += [f"struct {name};" for name in types if name not in tables]
        names = ", ".join(f'"{name}"' for name in types)
        out += [f"using {union} = std::variant<{', '.join(types)}>;",
                f"inline constexpr std::array<std::string_view, {len(types)}> k{union}Names = {{{names}}};", ""]
    return "\n".join([*out, "}  // namespace tarn", ""])


def conversions_header(stem, flatc, tables, natives, enums):
    text = flatc.replace('#include "core/codec/pack.h"\n', f'#include "core/codec/pack.h"\n#include "{stem}_objects.h"\n')
    for name in [*tables, *natives]:
        text = text.replace(f"struct {name}T;\n", f"using {name}T = tarn::{name};\n")
        text = text.replace(block(text, f"struct {name}T : public"), "")
        for copy in re.findall(rf"^inline {name}T(?:::| &).*?^}}\n", text, re.S | re.M):
            text = text.replace(copy, "")
    for enum in enums:
        text = text.replace(block(text, f"enum class {enum} "), f"using tarn::{enum};\n")
    for name in natives:
        text = text.replace(block(text, f"inline void {name}::UnPackTo"), "")
        text = text.replace(block(text, rf"inline flatbuffers::Offset<{name}> Create{name}\([^\n]*const {name}T \*_o"), "")
    held = len(re.findall(HELD, text)) - len(re.findall(rf"{HELD} UnPack|return {HELD}", text))
    changes = 0
    for form, plain in (
        (rf"_o->(\w+) = {HELD}\(_e->UnPack\(_resolver\)\)", r"_e->UnPackTo(&_o->\1, _resolver)"),
        (rf"_o->(\w+)\[_i\] = {HELD}\(_e->Get\(_i\)->UnPack\(_resolver\)\)", r"_e->Get(_i)->UnPackTo(&_o->\1[_i], _resolver)"),
    ):
        text, count = re.subn(form, plain, text)
        changes += count
    text = re.sub(r"_o->(\w+) \? (Create\w+)\(_fbb, _o->\1\.get\(\), _rehasher\) : 0", r"\2(_fbb, &_o->\1, _rehasher)", text)
    text = re.sub(r"__va->__o->(\w+)\[i\]\.get\(\)", r"&__va->__o->\1[i]", text)
    if changes != held:
        sys.exit(f"objects.py: {stem}: flatc holds {held} tables by pointer in a way that is known, and {changes} were found")
    return text


def main(schema, flatc_header, out):
    stem, own = schema.stem, re.sub(r"//[^\n]*", "", schema.read_text())
    flatc = flatc_header.read_text()
    root = re.findall(r"^root_type (\w+);", own, re.M)
    natives = re.findall(r"^table (\w+) \(native_table\)", own, re.M)
    tables = [name for name in re.findall(r"^table (\w+) {", own, re.M) if name not in root]
    used = "\n".join(block(flatc, f"struct {name}T : public") for name in tables)
    enums = [name for name in re.findall(r"^enum (\w+)", own, re.M) if f"tarn::wire::{name} " in used]
    unions = {name: re.findall(r"\w+", types) for name, types in re.findall(r"^union (\w+) {([^}]*)}", own, re.M)}
    includes = [name for name in re.findall(r'^include "(\w+)\.fbs";', own, re.M) if name != "data"]
    limits = sorted(set(re.findall(r'(?:limit|each): "(\w+)"', schema_text(schema))))
    out.joinpath(f"{stem}_objects.h").write_text(objects_header(stem, includes, flatc, tables, enums, unions))
    out.joinpath(f"{stem}_generated.h").write_text(conversions_header(stem, flatc, tables, natives, enums))
    out.joinpath(f"{stem}_limits.inc").write_text("".join(f'{{"{name}", limits::{name}}},\n' for name in limits))


if __name__ == "__main__":
    main(*(pathlib.Path(argument) for argument in sys.argv[1:]))
