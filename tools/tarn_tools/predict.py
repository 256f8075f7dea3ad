"""tools/predict: predicts probabilities for the rows of a file, with an export of trained parameters."""

import argparse
import contextlib
import gzip
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import zlib

from tarn_tools import called, errors

ROWS_AT_ONCE = 4096
INSPECT = pathlib.Path(__file__).resolve().parents[1] / "inspect"

DESCRIPTION = """\
Scores the rows of a file of lines (criteo, libsvm) with an export. Prints one line per row: the probability of label 1,
or for model.kind = "mlp" those of all classes, separated by blanks. A malformed line is an error, whatever
data.malformed_max is, so that lines of the output and of the file correspond.

  tools/inspect export runs/mine model.tarn
  tools/predict runs/mine model.tarn rows.tsv > probabilities
  tools/predict runs/mine model.tarn - --unlabelled < rows.tsv    lines without labels
  tools/predict runs/mine runs/mine rows.tsv > probabilities      exports first: the best epoch if the job validates

docs/serving.md has the formulas. python/tarn/score.py does the same in a program of your own. Needs NumPy.
"""


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog=called.here("tools/predict"), description=called.here(DESCRIPTION), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", metavar="JOB", help="job file, or folder of a run")
    parser.add_argument(
        "export", metavar="EXPORT", help=called.here("a full export, of tools/inspect export") + "; or a run's folder or a checkpoint, exported first"
    )
    parser.add_argument("file", metavar="FILE", help="lines in the format of the job's [data] section, plain or gzip; -: plain, from stdin")
    parser.add_argument(
        "--delta", action="append", default=[], metavar="EXPORT", help="delta to apply; may be repeated, in order"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--best", action="store_true", help="if the export is a run's folder: use its best checkpoint")
    which.add_argument("--newest", action="store_true", help="if the export is a run's folder: use its newest checkpoint")
    which.add_argument("--checkpoint", metavar="N", help="if the export is a run's folder: use checkpoint N")
    parser.add_argument("--bin-dir", metavar="DIR", help="folder of the programs for the export (default: build/release/bin, after a build)")
    parser.add_argument("--unlabelled", action="store_true", help="lines have no label (and, in the criteo format, no tab after it)")
    parser.add_argument(
        "--initial",
        action="store_true",
        help="use initial values for keys without a row, as evaluation during training does, instead of zeros",
    )
    return parser.parse_args(argv)


def read_job(path):
    path = pathlib.Path(path)
    with open(path / "job.toml" if path.is_dir() else path, "rb") as file:
        try:
            return tomllib.load(file)
        except ValueError as error:
            raise ValueError(f"{file.name}: {error}") from None


def labelled(lines, data):
    """Prepends a label to lines without one."""
    label = b"0\t" if data.get("format", "criteo") == "criteo" else b"0 "
    return (label + line for line in lines)


def choice(options):
    """The arguments of tools/inspect export that select the checkpoint."""
    if options.checkpoint is not None:
        return ["--checkpoint", options.checkpoint]
    return ["--best"] if options.best else ["--newest"] if options.newest else []


@contextlib.contextmanager
def export_of(options):
    """The path of the export. An export made from a checkpoint is removed at the end."""
    if not os.path.isdir(options.export):
        if choice(options):
            raise ValueError(f"{options.export}: this is an export, expected a run's folder with {choice(options)[0]}")
        yield options.export
        return
    with tempfile.TemporaryDirectory(prefix="tarn-predict-") as folder:
        path = os.path.join(folder, "model.tarn")
        programs = ["--bin-dir", options.bin_dir] if options.bin_dir else []
        command = [INSPECT, *programs, "export", options.export, path, *choice(options)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise ValueError(done.stderr.strip().removeprefix("tarn-inspect: ") or "the export failed")
        yield path


def predict(options, out):
    with export_of(options) as export:
        score(options, export, out)


def score(options, export, out):
    from tarn.export import Model
    from tarn.keys import Encoder, RowError, open_lines
    from tarn.score import Scorer

    job = read_job(options.job)
    data = job.get("data", {})
    model, encoder = Model(export), Encoder(data)
    for path in options.delta:
        model.apply(path)
    scorer = Scorer(model, job, options.initial)
    with sys.stdin.buffer if options.file == "-" else open_lines(options.file) as file:
        lines, first = labelled(file, data) if options.unlabelled else file, 1
        try:
            while some := list(itertools.islice(lines, ROWS_AT_ONCE)):
                p = scorer.probabilities(encoder.lines(some, first))
                out.writelines(" ".join(f"{x:.9g}" for x in row) + "\n" for row in p.reshape(len(p), -1))
                first += len(some)
        except (RowError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{'stdin' if options.file == '-' else options.file}: {error}") from None
    out.flush()


@called.interruptible("tools/predict")
def main(argv):
    options = parse_arguments(argv)
    try:
        predict(options, sys.stdout)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # because the interpreter flushes again
        return 1
    except ModuleNotFoundError as error:
        print(f"{called.here('tools/predict')}: {error}: it needs NumPy", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:  # errors of the package tarn are ValueErrors
        print(f"{called.here('tools/predict')}: {errors.message(error)}", file=sys.stderr)
        return 1
    return 0
