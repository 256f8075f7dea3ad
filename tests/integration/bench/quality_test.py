"""Shows that bench/pytorch_quality accepts the examples, adds the defaults of missing keys, knows every key of
docs/job-file.md, and rejects unsupported settings with a message that names the key. Needs no PyTorch: jobs are checked
before it is imported."""

import importlib.machinery
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "bench/pytorch_quality"
sys.dont_write_bytecode = True  # nothing beside the script
SHORT = """
data.train = "train.tsv"
data.test = "test.tsv"
data.bins = ["none"]
data.dense_integers = true
model.kind = "dlrm"
"""


def load():
    loader = importlib.machinery.SourceFileLoader("pytorch_quality", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("pytorch_quality", loader))
    loader.exec_module(module)
    return module


quality = load()


def documented():
    """The keys in docs/job-file.md: section -> {key: default as written}."""
    found, section = {}, None
    for line in (ROOT / "docs/job-file.md").read_text().splitlines():
        if line.startswith("## "):
            section = found.setdefault(line[4:].split("]")[0], {})
        elif row := re.match(r"\| `(\w+)` \| [^|`]* \| `([^`]*)` \|", line):
            section[row[1]] = row[2]
    return found


def documented_options():
    """The options of update rules in docs/job-file.md: name -> default as written."""
    rows = re.finditer(r"^\| `(\w+)` \| `([^`]*)` \| a number", (ROOT / "docs/job-file.md").read_text(), re.MULTILINE)
    return {row[1]: row[2] for row in rows}


class QualityTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.job = pathlib.Path(folder.name) / "job.toml"
        self.job.write_text(SHORT)

    def refused(self, *arguments):
        done = subprocess.run([sys.executable, SCRIPT, *arguments, self.job], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_the_examples_are_taken(self):
        for name, rows in (("dlrm", 2048), ("dcn_v2", 512)):
            job = quality.read_job(ROOT / f"examples/criteo-{name}.toml", [])
            self.assertEqual((job["model"]["kind"], job["train"]["batch_rows"]), (name, rows))
            self.assertEqual((job["embedding"]["learning_rate"], job["dense"]["learning_rate"]), (0.08, 0.01))
            self.assertEqual((job["embedding"]["kind"], job["dense"]["kind"]), ("adagrad", "adagrad"))

    def test_defaults(self):
        job = quality.read_job(self.job, ["optimizer.dense.kind=adam", "optimizer.epsilon=1e-6"])
        self.assertEqual((job["model"]["embedding_dim"], job["train"]["batch_rows"], job["fleet"]["workers"]), (8, 256, 1))
        self.assertEqual((job["embedding"]["kind"], job["dense"]["kind"]), ("sgd", "adam"))
        self.assertEqual((job["dense"]["epsilon"], job["dense"]["beta2"]), (1e-6, 0.999))

    def test_the_documented_keys_and_defaults(self):
        keys, options = documented(), documented_options()
        self.assertEqual(set(keys) - {"tables.NAME"}, set(quality.SECTIONS))
        for section in quality.SECTIONS:
            valued = quality.USED.get(section, {}) | quality.FIXED.get(section, {})
            known = {*valued, *quality.WITHOUT_EFFECT.get(section, "").split()}
            if section == "optimizer":
                self.assertLessEqual(known - set(keys[section]), set(options))
                known -= set(options)
                keys[section].update(options)
            self.assertEqual(set(keys[section]) - set(options), known, section)
            for key, default in valued.items():
                written = tomllib.loads(f"value = {keys[section][key]}")["value"]
                self.assertEqual(written, default, f"{section}.{key}")

    def test_what_cannot_be_done_is_refused_by_its_key(self):
        for setting in ("data.bins=[]", "data.bins=['width:5']", "data.dense_integers=false", "data.limit_rows=10",
                        "data.shuffle=true", "data.format=libsvm", "data.test=''", "model.kind=fm", "model.hidden=3",
                        "model.layers=3", "train.clip_global_norm=1", "train.epochs=2", "train.batch_rows=many",
                        "train.precision=bf16", "consistency.mode=ssp", "consistency.apply=immediate",
                        "optimizer.schedule=step", "optimizer.dense.l2=0.1", "optimizer.dense.clip_norm=1",
                        "optimizer.dense.kind=momentum", "optimizer.embedding.kind=adam"):
            self.assertIn(f"{setting.split('=')[0]}", self.refused("--set", setting), setting)
        self.assertIn("optimizer.embedding.kind = 'adam'", self.refused("--set", "optimizer.kind=adam"))
        self.assertIn("tables: ", self.refused("--set", "tables.embedding.push_codec=int8"))
        self.assertIn("modle: ", self.refused("--set", "modle.kind=dlrm"))

    def test_no_job(self):
        self.job.write_text("[model\n")
        self.assertIn("line 1", self.refused())
        self.job.unlink()
        self.assertIn("No such file", self.refused())


if __name__ == "__main__":
    unittest.main()
