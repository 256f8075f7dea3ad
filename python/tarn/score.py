"""Scores rows with an export: logits and probabilities of every model that tarn trains.

    import tomllib
    from tarn.export import Model
    from tarn.keys import Encoder, open_lines
    from tarn.score import Scorer

    job = tomllib.load(open("runs/mine/job.toml", "rb"))
    encoder, scorer = Encoder(job["data"]), Scorer(Model("model.tarn"), job)
    rows = encoder.lines(open_lines("test.tsv"))
    probabilities = scorer.probabilities(rows)   # float64 [rows], of label 1; mlp: [rows, classes]

docs/serving.md has the formulas. A key without a row has zeros or, with Scorer(..., initial=True), its initial values,
as in evaluation during training: use this to reproduce the figures of a run's summary.json. Needs only NumPy, and
memory for the embeddings of the rows of a call: pass thousands of rows at a time, not millions.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarn.export import Model
from tarn.keys import Rows

Array = NDArray[Any]
_BIAS = np.uint64(0)


class ScoreError(ValueError):
    """An export, a job and rows that do not match; the message has what was expected."""


class _Layers:
    """A sequence of fully connected layers."""

    def __init__(self, layers: list[tuple[Array, Array]], relu_last: bool) -> None:
        self._layers, self._relu_last = layers, relu_last
        for (before, _), (w, _) in zip(layers, layers[1:]):
            if w.shape[1] != len(before):
                raise ScoreError(f"a layer has {w.shape[1]} inputs, but the layer before it has {len(before)} outputs")
        self.inputs: int = layers[0][0].shape[1]

    def __call__(self, x: Array) -> Array:
        for number, (w, bias) in enumerate(self._layers, 1):
            x = x @ w.T + bias
            if self._relu_last or number < len(self._layers):
                x = np.maximum(x, 0)
        return x


class Scorer:
    """Scores rows by a model. Reads dense layers at construction, so make another after Model.apply. `job`: the job
    file as a dict, of which model.kind is used. Raises ScoreError if the export does not have the tables of such a
    model."""

    def __init__(self, model: Model, job: Mapping[str, Any], initial: bool = False) -> None:
        self._model, self._initial = model, initial
        self.kind: str = job.get("model", {}).get("kind", "logistic_regression")
        kinds: dict[str, Callable[[Rows], Array]] = {"logistic_regression": self._linear, "fm": self._fm, "wide_deep": self._wide_deep,
                 "deepfm": self._deepfm, "dlrm": self._dlrm, "dcn_v2": self._dcn_v2, "mlp": self._mlp}
        if self.kind not in kinds:
            raise ScoreError(f"model.kind is '{self.kind}': expected one of {', '.join(kinds)}")
        self._logits = kinds[self.kind]
        if self.kind in ("logistic_regression", "fm", "wide_deep", "deepfm"):
            self._expect("linear")
        if self.kind not in ("logistic_regression", "mlp"):
            self._expect("embedding")
        if self.kind in ("wide_deep", "deepfm", "mlp"):
            self._layers = self._stack("layer")
        if self.kind in ("dlrm", "dcn_v2"):
            self._bottom = self._stack("bottom", relu_last=True) if "bottom.0" in model.names else None
            self._top = self._stack("top")
        if self.kind == "dlrm" and self._bottom is None:
            self._expect("bottom.0")
        self._cross = self._cross_layers() if self.kind == "dcn_v2" else []

    def logits(self, rows: Rows) -> NDArray[np.float64]:
        """Returns float64 [rows]; mlp: [rows, classes]. `rows`: tarn.keys.Rows. Raises ScoreError on a mismatch."""
        return self._logits(rows).astype(np.float64)

    def probabilities(self, rows: Rows) -> NDArray[np.float64]:
        """Returns the probability of label 1, float64 [rows]; mlp: of each class, [rows, classes]."""
        logits = self.logits(rows)
        if logits.ndim == 1:
            return np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def _expect(self, table: str) -> None:
        if table not in self._model.names:
            raise ScoreError(f"the export has no table '{table}', which model.kind = \"{self.kind}\" needs; its tables are "
                             + (", ".join(self._model.names) or "none"))

    def _matrix(self, name: str, bias: bool = True) -> tuple[Array, Array]:
        """The weights [outputs, inputs] and biases [outputs] of a dense layer."""
        self._expect(name)
        keys, values = self._model.table(name)
        if len(keys) != self._model.dense_rows(name) or not len(keys):
            raise ScoreError(f"the export has {len(keys)} rows of layer '{name}', expected all of "
                             f"{self._model.dense_rows(name)}")
        return (values[:, :-1], values[:, -1]) if bias else (values, np.zeros(len(values), np.float32))

    def _stack(self, name: str, relu_last: bool = False) -> _Layers:
        self._expect(f"{name}.0")
        names = [f"{name}.{i}" for i in range(sum(table.startswith(f"{name}.") for table in self._model.names))]
        return _Layers([self._matrix(table) for table in names], relu_last)

    def _cross_layers(self) -> list[list[_Layers]]:
        names, layers = self._model.names, list[list[_Layers]]()
        while (name := f"cross.{len(layers)}") in names or f"{name}.v" in names:
            matrices = [self._matrix(name)] if name in names else [self._matrix(f"{name}.v", bias=False),
                                                                   self._matrix(f"{name}.u")]
            layers.append([_Layers([matrix], relu_last=False) for matrix in matrices])
        return layers

    def _values(self, table: str, rows: Rows) -> Array:
        """The rows of a table for the keys of `rows`."""
        every, place = np.unique(rows.keys, return_inverse=True)
        return self._model.lookup(table, every, self._initial)[0][place]

    def _embeddings(self, rows: Rows) -> Array:
        """[rows, keys per row, dim]"""
        if rows.fields == 0:
            raise ScoreError(f"model.kind = \"{self.kind}\" needs rows with the same number of keys")
        values = self._values("embedding", rows)
        return values.reshape(len(rows), rows.fields, values.shape[1])

    def _side_by_side(self, rows: Rows) -> Array:
        """[rows, keys per row x dim]"""
        x = self._embeddings(rows)
        return x.reshape(len(rows), x.shape[1] * x.shape[2])

    def _run(self, layers: _Layers, x: Array) -> Array:
        if x.shape[1] != layers.inputs:
            raise ScoreError(f"the rows give {x.shape[1]} inputs for a layer with {layers.inputs}: they were encoded with "
                             "another [data] section than the model")
        return layers(x)

    def _linear(self, rows: Rows) -> Array:
        weights = self._values("linear", rows)[:, 0].astype(np.float64) * rows.weights
        bias = self._model.lookup("linear", np.array([_BIAS]))[0][0, 0]
        return np.asarray(np.bincount(_row_of(rows), weights, len(rows)) + bias)

    def _pairs(self, rows: Rows) -> Array:
        x = self._values("embedding", rows).astype(np.float64) * rows.weights[:, None]
        row_of = _row_of(rows)
        sums = np.stack([np.bincount(row_of, column, len(rows)) for column in x.T], axis=1)
        return np.asarray(0.5 * ((sums**2).sum(axis=1) - np.bincount(row_of, (x**2).sum(axis=1), len(rows))))

    def _fm(self, rows: Rows) -> Array:
        return self._linear(rows) + self._pairs(rows)

    def _wide_deep(self, rows: Rows) -> Array:
        return self._linear(rows) + self._run(self._layers, self._side_by_side(rows))[:, 0]

    def _deepfm(self, rows: Rows) -> Array:
        return self._wide_deep(rows) + self._pairs(rows)

    def _dlrm(self, rows: Rows) -> Array:
        assert self._bottom is not None  # checked in __init__
        bottom = self._run(self._bottom, rows.dense)
        vectors = np.concatenate([bottom[:, None], self._embeddings(rows)], axis=1)
        first, second = np.tril_indices(vectors.shape[1], -1)
        products = (vectors @ vectors.transpose(0, 2, 1))[:, first, second]
        return self._run(self._top, np.concatenate([bottom, products], axis=1))[:, 0]

    def _dcn_v2(self, rows: Rows) -> Array:
        x0 = self._side_by_side(rows)
        if self._bottom is not None:
            x0 = np.concatenate([self._run(self._bottom, rows.dense), x0], axis=1)
        x = x0
        for layer in self._cross:
            y = x
            for part in layer:
                y = self._run(part, y)
            x = x0 * y + x
        return self._run(self._top, x)[:, 0]

    def _mlp(self, rows: Rows) -> Array:
        return self._run(self._layers, rows.dense)


def _row_of(rows: Rows) -> NDArray[np.intp]:
    """The row number of each key."""
    return np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
