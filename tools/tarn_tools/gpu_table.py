"""The results of bench/gpu as Markdown: every figure with its limit, its target and its peer."""

import dataclasses
import typing

from tarn_tools import bench_table


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table. The ceiling is the name of another figure, or "own": a number reported with the figure."""

    name: str
    about: str
    ceiling: str = ""
    share: typing.Optional[float] = None  # target, as a share of the ceiling
    at_least: typing.Optional[float] = None
    at_most: typing.Optional[float] = None
    peer: str = ""


COPY = "limit.copy"
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "row_wise_adagrad", "rmsprop", "adam", "adamw", "ftrl")

# The targets, by part of bench/gpu. Other figures are shown without a target.
PARTS = {
    "limits": [
        Row(COPY, "copy within GPU memory, bytes read and written"),
        Row("limit.product", "the largest matrix product, with cuBLASLt's fastest algorithm"),
        Row("limit.from_host", "copy from pinned host memory"),
        Row("limit.to_host", "copy to pinned host memory"),
        Row("limit.from_host_pageable", "copy from pageable host memory, through the driver's buffers"),
        Row("limit.to_host_pageable", "copy to pageable host memory"),
        Row("limit.launch", "a one-element kernel, one of many in a row"),
        Row("limit.launch_and_wait", "the same, launched and waited for one at a time"),
    ],
    "kernels": [
        Row("kernel.embedding_forward", "embeddings concatenated, all rows different", COPY, 0.90),
        Row("kernel.embedding_forward_power_law", "the same, power-law rows: hot ones come from the L2 cache", COPY, 0.90),
        Row("kernel.embedding_bag_forward", "embeddings summed, all rows different", COPY, 0.90),
        Row("kernel.embedding_backward_adagrad", "backward with row-wise Adagrad, including grouping by row", COPY, 0.60),
        Row("kernel.embedding_backward_adagrad_grouped", "the same, already grouped", COPY),
        Row("kernel.unique_keys", "removing duplicates of a batch's keys"),
        Row("plan.batch", "a batch's plan: keys to the GPU, deduplicated and grouped by partition, unique keys back"),
        Row("plan.batch_on_host", "the same on one host thread"),
        Row("kernel.interaction_forward", "dot interaction", COPY),
        Row("kernel.interaction_backward", "dot interaction, backward", COPY),
        Row("kernel.fp32_to_bf16", "fp32 to bf16", COPY),
        *(Row(f"kernel.optimizer_{kind}", f"{kind} of rows in random order", COPY, 0.90) for kind in OPTIMIZERS),
    ],
    "products": [
        Row("product.dlrm", "DLRM's layers, forward and backward, compared with cuBLASLt's fastest products alone", "own", 0.85),
        Row("product.dcn_v2", "DCN v2's layers, the same", "own", 0.85),
    ],
    "hot_rows": [
        Row("hot_rows.find", "hot-row cache half full: look-up", at_least=4e9),
        Row("hot_rows.find_and_read", "look-up, and copying the rows out", at_least=4e9),
        Row("hot_rows.find_full", "full: look-up", at_least=4e9),
        Row("hot_rows.find_and_read_full", "full: look-up, and copying the rows out", at_least=4e9),
    ],
    "steps": [
        Row("step.dlrm", "DLRM, only the GPU's work: all rows in the hot-row cache, no reading or pushing", at_least=10e6, peer="torch.dlrm"),
        Row("step.dlrm_graph", "the same, the model's work launched as a graph", at_least=10e6, peer="torch.dlrm"),
        Row("step.dcn_v2", "DCN v2 in MLPerf's shape, the same", at_least=2.6e6, peer="torch.dcn_v2"),
        Row("step.dcn_v2_graph", "the same, the model's work launched as a graph", at_least=2.6e6, peer="torch.dcn_v2"),
    ],
    "stepper": [
        Row("stepper.dlrm", "DLRM, rows from the host, gradients back: the worker's compute stage"),
        Row("stepper.dlrm_no_graphs", "the same, operations launched one by one"),
        Row("stepper.dcn_v2", "DCN v2, likewise"),
        Row("stepper.dcn_v2_no_graphs", "the same, operations launched one by one"),
    ],
    "fleet": [
        Row("fleet.pulled", "DLRM, every row pulled from servers on this machine, every gradient pushed", at_least=2.5e6),
        Row("fleet.hot", "DLRM, rows in the hot-row cache, every gradient pushed", at_least=10e6),
    ],
    "torch": [
        Row("torch.dlrm", "PyTorch: DLRM, tables in GPU memory, forward and backward"),
        Row("torch.dlrm_sgd", "PyTorch: the same with a step of SGD"),
        Row("torch.dcn_v2", "PyTorch: DCN v2, forward and backward"),
        Row("torch.dcn_v2_sgd", "PyTorch: the same with a step of SGD"),
    ],
    "tests": [
        Row("tests.gpu_kernels_test", "kernels compared with the CPU's: failed tests", at_most=0),
        Row("tests.gpu_stepper_test", "steps of every model compared with the CPU's: failed tests", at_most=0),
        Row("tests.gpu_train_test", "hot rows, plans and jobs: failed tests", at_most=0),
        Row("tests.tiny", "every part of gpu_bench at small sizes: number of figures", at_least=1),
    ],
    "sanitizer": [
        Row("sanitizer.memcheck", "GPU tests under compute-sanitizer: accesses out of bounds", at_most=0),
        Row("sanitizer.racecheck", "the same: races in shared memory", at_most=0),
        Row("sanitizer.synccheck", "the same: barriers that not all threads reach", at_most=0),
        Row("sanitizer.initcheck", "the same: reads of uninitialized memory", at_most=0),
    ],
}
HEAD = ["figure", "what", "measured", "ceiling", "share", "target", "reached", "beside PyTorch"]


def amount(value, unit):
    return f"{bench_table.number(value, unit)} {unit}" if unit.endswith("s/s") else f"{value:,.4g} {unit}"


def ceiling_of(row, figure, figures):
    """The maximum possible figure, in its unit; None: unknown."""
    if row.ceiling == "own":
        return figure.get("limit")
    found = figures.get(row.ceiling, {})
    return found.get("value") if found.get("unit") == figure["unit"] else None


def target_text(row, unit):
    if row.share is not None:
        return f"{100 * row.share:.0f}%"
    if row.at_least is not None:
        return amount(row.at_least, unit)
    return "" if row.at_most is None else f"at most {row.at_most:g}"


def reached(row, value, ceiling):
    """Whether the target is reached; None: no target, or no ceiling to compare with."""
    if row.share is not None:
        return None if not ceiling else value / ceiling >= row.share
    if row.at_least is not None:
        return value >= row.at_least
    return None if row.at_most is None else value <= row.at_most


def cells(row, figure, figures, counts):
    """The cells of one line. counts: false for a run on a CPU, for which no target applies."""
    value, unit = figure["value"], figure["unit"]
    ceiling = ceiling_of(row, figure, figures)
    peer = figures.get(row.peer, {}).get("value")
    verdict = reached(row, value, ceiling) if counts else None
    return [
        row.name,
        row.about,
        amount(value, unit),
        amount(ceiling, unit) if ceiling else "",
        f"{100 * value / ceiling:.1f}%" if ceiling else "",
        target_text(row, unit),
        {True: "yes", False: "**no**", None: ""}[verdict],
        f"{value / peer:.2f}x" if peer else "",
    ]


def of_part(name, part):
    """Whether a figure that no row expects belongs to a part: product.512x256 to products."""
    return name.split(".")[0] == part.removesuffix("s") or name.split(".")[0] == part


def table(part, figures, skipped, counts):
    rows = []
    for row in PARTS[part]:
        if row.name in figures:
            rows.append(cells(row, figures[row.name], figures, counts))
        else:
            why = skipped.get(row.name) or skipped.get(part) or "its program did not report it"
            rows.append([row.name, row.about, f"not measured: {why}", "", "", "", "", ""])
    known = {row.name for row in PARTS[part]}
    for name, figure in figures.items():
        if name not in known and of_part(name, part):
            rows.append(cells(Row(name, "", "own"), figure, figures, counts))
    return bench_table.table(HEAD, rows)


def document(where, lines, parts):
    """where: (name, value) pairs; lines: of the programs; parts: the requested ones."""
    figures = {line["name"]: line for line in lines if "skipped" not in line}
    skipped = {line["name"]: line["skipped"] for line in lines if "skipped" in line}
    device = next((f["settings"]["device"] for f in figures.values() if "device" in f.get("settings", {})), "")
    counts = device != "cpu"
    text = ["# GPU\n", "\n".join(f"- {what}: {value}" for what, value in where) + "\n"]
    if not counts:
        text.append("**Run on a CPU at tiny sizes: this tests the benchmark itself; the figures mean nothing.**\n")
    for part in (part for part in PARTS if part in parts or (part == "limits" and COPY in figures)):
        text += [f"## {part}\n", table(part, figures, skipped, counts)]
    notes = [f"- {name}: {line['note']}" for name, line in figures.items() if line.get("note")]
    if notes:
        text += ["Notes:\n", "\n".join(notes) + "\n"]
    return "\n".join(text)
