"""A LAB.toml: what is compared. docs/lab.md describes its keys.

  study = read("examples/lab/stragglers.toml")
  for trial in study.trials(): ...   # every condition x algorithm x point of its grid x seed; for a [search]: search.py
"""

import dataclasses
import difflib
import hashlib
import itertools
import json
import math
import pathlib
import re
import tomllib

from tarn_tools.lab.algorithms import BY_NAME, HOOKS, SERVER_RATE, SHARE_OF_A_WORKER, WORKERS

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+=,-]{0,63}")
ENGINES = ("simulated", "real")
METRICS = {"auc": True, "logloss": False, "accuracy": True}  # name -> whether more is better
METRICS_OF_CLASSES = ("accuracy", "logloss")  # of an mlp
LAB_KEYS = ("name", "about", "job", "seeds", "engine", "metric", "baseline", "target_loss", "algorithms", "generate")
SEARCH_KEYS = ("points", "at_a_time", "seed", "space")
GENERATE_KEYS = ("rows", "valid", "test", "seed")
ROLES = ("linear", "embedding", "dense")


class StudyError(Exception):
    """A study cannot be run. The message has the reason; for an error in LAB.toml the file, the key, the value and what was
    expected."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """An algorithm of the study: its own name, the algorithms that it combines, its settings and its grid."""

    name: str
    use: tuple
    settings: tuple  # (key, value), those of `use` first
    grid: tuple  # (key, values)
    rate: str = SERVER_RATE  # the key that "rate" of a grid stands for

    def points(self):
        """The points of the grid, each a dict; a single empty one without a grid."""
        keys = [key for key, _ in self.grid]
        return [self.resolved(dict(zip(keys, values))) for values in itertools.product(*(values for _, values in self.grid))]

    def resolved(self, point):
        """A point with the key of the job file in place of "rate"."""
        return {self.rate if key == "rate" else key: value for key, value in point.items()}


@dataclasses.dataclass(frozen=True)
class Trial:
    condition: str
    algorithm: str
    point: tuple  # (key, value)
    seed: int
    overrides: tuple  # "key=value", as --set takes them
    key: str  # hash of engine, job file, overrides, the data folder and parameters of the data, but not of the programs

    @property
    def folder(self):
        point = ",".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in self.point) or "default"
        return pathlib.PurePosixPath(slug(self.condition), slug(self.algorithm), slug(point), f"seed-{self.seed}")

    @property
    def label(self):
        point = ", ".join(f"{key.rsplit('.', 1)[-1]} {value}" for key, value in self.point)
        return " · ".join(part for part in (self.condition, self.algorithm, point, f"seed {self.seed}") if part)


@dataclasses.dataclass(frozen=True)
class Study:
    path: pathlib.Path
    text: str  # of the file
    name: str
    about: str
    job: pathlib.Path
    job_text: str
    job_table: dict
    seeds: tuple
    engine: str
    metric: str
    baseline: str
    target_loss: float | None
    generate: dict | None  # parameters of tarn-generate, which makes missing data of the job
    settings: dict
    conditions: dict  # name -> settings
    entries: tuple
    search: dict | None  # "points", "at_a_time", "seed", "space": key -> values, or "low", "high", "log"

    @property
    def data_dir(self):
        return (self.job.parent / self.job_table.get("data", {}).get("dir", "")).resolve()

    @property
    def more_is_better(self):
        return METRICS[self.metric]

    @property
    def sha256(self):
        return hashlib.sha256((self.text + self.job_text).encode()).hexdigest()

    def job_is_changed(self):
        """Whether the job file has another text than when the study was read."""
        try:
            return self.job.read_text(encoding="utf-8") != self.job_text
        except (OSError, UnicodeDecodeError):
            return True

    def trials(self):
        """The trials of all points of the grids. With a [search], one for each condition, algorithm and seed."""
        return [trial for condition in self.conditions for entry in self.entries for point in entry.points()
                for trial in self.trials_of(condition, entry, point)]

    def trials_of(self, condition, entry, point):
        """The trials of a point, one for each seed."""
        settings = {**self.settings, **dict(entry.settings), **self.conditions[condition], **point}
        return [self._trial(condition, entry, point, seed, settings) for seed in self.seeds]

    def _trial(self, condition, entry, point, seed, settings):
        overrides = tuple(f"{key}={toml(value)}" for key, value in expand({**settings, "job.seed": seed}, self.job_table).items())
        text = json.dumps([self.engine, self.job_text, str(self.data_dir), overrides, self.generate])
        return Trial(condition, entry.name, tuple(point.items()), seed, overrides, hashlib.sha256(text.encode()).hexdigest())


def slug(text):
    return re.sub(r"[^A-Za-z0-9.=,_+-]+", "_", text) or "all"


def toml(value):
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def with_settings(job, settings):
    """The job with the settings for keys of [model] and [data]."""
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if section in ("model", "data"):
            job = {**job, section: {**job.get(section, {}), name: value}}
    return job


def tables_of(job):
    """The names of the model's tables (docs/job-file.md, [tables.NAME])."""
    model = job.get("model", {})
    kind = model.get("kind", "logistic_regression")

    def layers(prefix, units):
        return [f"{prefix}.{index}" for index in range(units)]

    hidden, bottom = len(model.get("hidden", (64, 32))), len(model.get("bottom", (64, 32)))
    crosses = layers("cross", model.get("cross_layers", 3))
    if model.get("cross_rank", 0):
        crosses = [f"{layer}.{factor}" for layer in crosses for factor in "vu"]
    data = job.get("data", {})
    has_dense = data.get("format", "criteo") == "criteo" and data.get("dense_integers", False)
    below_dcn = layers("bottom", bottom + 1) if has_dense else []
    return {
        "logistic_regression": ["linear"],
        "fm": ["linear", "embedding"],
        "wide_deep": ["linear", "embedding", *layers("layer", hidden + 1)],
        "deepfm": ["linear", "embedding", *layers("layer", hidden + 1)],
        "mlp": layers("layer", hidden + 1),
        "dcn_v2": ["embedding", *below_dcn, *crosses, *layers("top", hidden + 1)],
    }.get(kind, ["embedding", *layers("bottom", bottom + 1), *layers("top", hidden + 1)])


SPARSE_TABLES = ("linear", "embedding")
SCALED_CODECS = ("int8", "qsgd", "ternary", "sign", "one_bit")


def fits(table, key, value):
    """Whether a table can have a setting: some codecs add a scale of four bytes to each row, which would outweigh the
    saving for rows of one value, and low_rank is for dense tables."""
    if value == "low_rank" or key == "push_rank":
        return table not in SPARSE_TABLES
    return not (value in SCALED_CODECS and table == "linear")


def expand(settings, job):
    """Settings for all tables ("tables.*.KEY") become one for each table; those of [optimizer] also apply to the roles
    of which the job sets the key and no setting does; values that follow from the number of workers become numbers."""
    found = {}
    workers = settings.get("fleet.workers", job.get("fleet", {}).get("workers", 1))
    of_workers = {WORKERS: float(workers), SHARE_OF_A_WORKER: 1 / workers}
    for key, value in settings.items():
        value = of_workers.get(value, value) if isinstance(value, str) else value
        if key.startswith("tables.*."):
            tables = [table for table in tables_of(with_settings(job, settings)) if fits(table, key[9:], value)]
            if not tables:
                raise StudyError(f"{key} = {value!r}: no table of the model supports it: rows of one value have no scale, "
                                 "and low_rank is for dense layers")
            found.update({f'tables."{table}".{key[9:]}': value for table in tables})
            continue
        found[key] = value
        if key.startswith("optimizer.") and key.count(".") == 1:
            name = key.split(".")[1]
            for role in ROLES:
                if name in job.get("optimizer", {}).get(role, {}) and f"optimizer.{role}.{name}" not in settings:
                    found[f"optimizer.{role}.{name}"] = value
    return found


def leaves(value):
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]


def overlap(one, other):
    """Whether two keys set the same value: equal ones, or a key of a role or table and the one for all of them."""
    return one == other or reach(one) == reach(other) in (one, other)


def reach(key):
    """The key without the role or table that it is for."""
    return re.sub(r'^tables\.("[^"]*"|[^.]*)\.', "tables.*.", re.sub(rf"^optimizer\.({'|'.join(ROLES)})\.", "optimizer.", key))


class _Reader:
    def __init__(self, path):
        self.path = path

    def fail(self, key, problem):
        raise StudyError(f"{self.path}: {key}: {problem}")

    def text(self, table, key, default):
        value = table.get(key, default)
        if not isinstance(value, str):
            self.fail(key, f"expected a string, found {value!r}")
        return value

    def one_of(self, table, key, default, choices):
        value = self.text(table, key, default)
        if value not in choices:
            self.fail(key, f"expected one of {', '.join(choices)}, found {value!r}{nearest(value, choices)}")
        return value

    def known(self, where, table, keys):
        for key in table:
            if key not in keys:
                self.fail(f"{where}{key}", f"unknown key{nearest(key, keys)}")

    def name(self, key, value):
        if not isinstance(value, str) or not NAME.fullmatch(value):
            self.fail(key, f"expected a name of at most 64 letters, digits, spaces and ._+=,- (a letter or digit first), found {value!r}")
        return value

    def settings(self, key, table):
        if not isinstance(table, dict):
            self.fail(key, f"expected a table of job keys, such as {{ \"fleet.workers\" = 8 }}, found {table!r}")
        flat = {}
        for name, value in table.items():
            if isinstance(value, dict):
                flat.update({f"{name}.{inner}": item for inner, item in self.settings(key, value).items()})
            else:
                for item in leaves(value):
                    if not isinstance(item, (int, float, str)) or (isinstance(item, float) and not math.isfinite(item)):
                        self.fail(f"{key}.{name}", f"expected finite numbers, strings, true or false, or lists of these, found {item!r}")
                flat[name] = value
        return flat

    def grid(self, key, table):
        found = []
        for name, values in self.settings(key, table).items():
            if not isinstance(values, list) or not values:
                self.fail(f"{key}.{name}", f"expected a list of values, found {values!r}")
            if len({json.dumps(value) for value in values}) != len(values):
                self.fail(f"{key}.{name}", f"expected each value once, found {values!r}")
            found.append((name, tuple(tuple(value) if isinstance(value, list) else value for value in values)))
        return tuple(found)

    def search(self, table):
        """[search] with its defaults; None without one."""
        if table is None:
            return None
        self.known("search.", table, SEARCH_KEYS)
        found = {"points": 20, "at_a_time": 4, "seed": 1, **table}
        for key, least in (("points", 1), ("at_a_time", 1), ("seed", 0)):
            if type(found[key]) is not int or found[key] < least:
                self.fail(f"search.{key}", f"expected a whole number of at least {least}, found {found[key]!r}")
        space = found.get("space")
        if not isinstance(space, dict) or not space:
            self.fail("search.space", "expected the keys to search, such as rate = { low = 0.01, high = 1.0, log = true }")
        for key, values in space.items():
            self._range(f"search.space.{key}", values)
        return found

    def _range(self, key, values):
        if isinstance(values, list) and values and not any(isinstance(value, (list, dict)) for value in values):
            return
        if not isinstance(values, dict) or not {"low", "high"} <= set(values) <= {"low", "high", "log"}:
            self.fail(key, f"expected {{ low = ..., high = ..., log = true or false }} or a list of values, found {values!r}; "
                           "a key with dots is written in quotes")
        low, high, log = values["low"], values["high"], values.get("log", False)
        if not all(type(each) in (int, float) for each in (low, high)) or not low < high or type(log) is not bool or (log and low <= 0):
            self.fail(key, f"expected numbers with low < high, and low > 0 with log, found {values!r}")


def nearest(word, words):
    match = difflib.get_close_matches(str(word), list(words), 1)
    return f"; the nearest is {match[0]!r}" if match else ""


def _entry(reader, raw, grid, of_all, conditions):
    """The entry of one algorithm. `raw`: its name or its [[algorithm]]; `of_all`: the settings of [set]."""
    if isinstance(raw, str):
        raw = {"name": raw}
    if not isinstance(raw, dict):
        reader.fail("algorithms", f"expected a name or a table, found {raw!r}")
    reader.known("algorithm.", raw, ("name", "use", "set", "grid"))
    if "name" not in raw:
        reader.fail("algorithm", "expected a name")
    name = reader.name("algorithm.name", raw["name"])
    use = raw.get("use", [name])
    use = [use] if isinstance(use, str) else use
    if not isinstance(use, list) or not use or not all(isinstance(each, str) for each in use):
        reader.fail(f"algorithm {name!r}.use", f"expected a list of names, found {use!r}")
    settings, hooks, rate = {}, {}, SERVER_RATE
    for each in use:
        if each not in BY_NAME:
            reader.fail(f"algorithm {name!r}", f"unknown algorithm {each!r}{nearest(each, BY_NAME)}; tools/lab --list shows all")
    for each in sorted(use, key=lambda each: HOOKS.index(BY_NAME[each].hook)):
        algorithm = BY_NAME[each]
        if algorithm.hook in hooks:
            reader.fail(f"algorithm {name!r}", f"{hooks[algorithm.hook]!r} and {each!r} both are {algorithm.hook} algorithms: expected one of a kind")
        hooks[algorithm.hook] = each
        rate = algorithm.rate if algorithm.hook in ("server", "worker") else rate
        # A setting of an earlier hook's algorithm has precedence.
        settings = {**settings, **{key: value for key, value in algorithm.settings.items() if key not in settings}}
    own = reader.settings(f"algorithm {name!r}.set", raw.get("set", {}))
    for key, other, value in _conflicts(settings, of_all):
        if key not in own and other not in own:
            reader.fail(f"set.{other}", f"{of_all[other]!r}, but algorithm {name!r} has {key} = {value!r}; put it in the set of that "
                                        "algorithm")
    settings.update(own)
    for condition, others in conditions.items():
        for key, other, value in _conflicts(settings, others):
            reader.fail(f"conditions.{condition}.{other}", f"{others[other]!r}, but algorithm {name!r} has {key} = {value!r}; expected "
                                                           "conditions without the keys of an algorithm")
    points = reader.grid(f"algorithm {name!r}.grid", raw["grid"]) if "grid" in raw else grid
    return Entry(name, tuple(use), tuple(settings.items()), points, rate)


def _conflicts(settings, others):
    """(key, other key, value) of settings that others set to another value, perhaps for one role or table only."""
    return [(key, other, value) for key, value in settings.items() for other, theirs in others.items()
            if overlap(key, other) and theirs != value]


def read(path):
    """The study of a file. Raises StudyError and OSError."""
    path = pathlib.Path(path)
    reader = _Reader(path)
    try:
        text = path.read_text(encoding="utf-8")
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StudyError(f"{path}: expected TOML: {error}") from error
    reader.known("", raw, ("lab", "set", "conditions", "grid", "search", "algorithm"))
    for key, kind in (("lab", dict), ("set", dict), ("conditions", dict), ("grid", dict), ("algorithm", list)):
        if not isinstance(raw.get(key, kind()), kind):
            reader.fail(key, f"expected a {'table' if kind is dict else 'list of tables, [[algorithm]]'}, found {raw[key]!r}")
    lab = raw.get("lab", {})
    reader.known("lab.", lab, LAB_KEYS)
    if not isinstance(lab.get("algorithms", []), list):
        reader.fail("lab.algorithms", f"expected a list of names, found {lab['algorithms']!r}")
    if not isinstance(lab.get("job"), str):
        reader.fail("lab.job", "expected the path of a job file, relative to this file")
    job = (path.parent / lab["job"]).resolve()
    try:
        job_text = job.read_text(encoding="utf-8")
        job_table = tomllib.loads(job_text)
    except OSError as error:
        reader.fail("lab.job", f"{job}: {error.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reader.fail("lab.job", f"{job}: expected TOML: {error}")
    seeds = lab.get("seeds", [1, 2, 3])
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        reader.fail("lab.seeds", f"expected a list of whole numbers, found {seeds!r}")
    if len(set(seeds)) != len(seeds):
        reader.fail("lab.seeds", f"expected each seed once, found {seeds!r}")
    grid = reader.grid("grid", raw.get("grid", {}))
    of_all = reader.settings("set", raw.get("set", {}))
    conditions = {
        reader.name("conditions", name): reader.settings(f"conditions.{name}", table)
        for name, table in raw.get("conditions", {"": {}}).items() if name
    } or {"": {}}
    if len({slug(name) for name in conditions}) != len(conditions):
        reader.fail("conditions", f"expected each name once, also with _ for a space, found {list(conditions)}")
    entries = [_entry(reader, each, grid, of_all, conditions) for each in [*lab.get("algorithms", []), *raw.get("algorithm", [])]]
    if not entries:
        reader.fail("lab.algorithms", "expected at least one algorithm; tools/lab --list shows all")
    names = [entry.name for entry in entries]
    if len({slug(name) for name in names}) != len(names):
        reader.fail("algorithm.name", f"expected each name once, also with _ for a space, found {names}")
    search = reader.search(raw.get("search"))
    if search and any(entry.grid for entry in entries):
        reader.fail("search", "expected a [search] or a grid, found both")
    for entry in entries:
        for key in entry.resolved(dict.fromkeys([*(key for key, _ in entry.grid), *(search or {}).get("space", {})])):
            for condition, others in conditions.items():
                if same := [other for other in others if overlap(other, key)]:
                    reader.fail(f"conditions.{condition}.{same[0]}", f"the grid or search also sets it: expected {key} in one of them")
    changes = [of_all, *(dict(entry.settings) for entry in entries), *(raw.get("conditions") or {}).values()]
    shared = with_settings(job_table, of_all)
    has_valid = bool(shared.get("data", {}).get("valid")) and all(each.get("data.valid", True) for each in changes)
    if (search or any(len(entry.points()) > 1 for entry in entries)) and not has_valid:
        reader.fail("search" if search else "grid", f"{job} has no validation set (data.valid), on which the best point is chosen")
    generate = lab.get("generate")
    if generate is not None:
        if not isinstance(generate, dict):
            reader.fail("lab.generate", f"expected a table, found {generate!r}")
        reader.known("lab.generate.", generate, GENERATE_KEYS)
        for key, value in generate.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                reader.fail(f"lab.generate.{key}", f"expected a whole number, found {value!r}")
    target = lab.get("target_loss")
    if target is not None and not (isinstance(target, (int, float)) and math.isfinite(target)):
        reader.fail("lab.target_loss", f"expected a finite number, found {target!r}")
    metrics = METRICS_OF_CLASSES if shared.get("model", {}).get("kind") == "mlp" else tuple(METRICS)
    return Study(
        path=path,
        text=text,
        name=reader.name("lab.name", lab.get("name", path.stem)),
        about=reader.text(lab, "about", ""),
        job=job,
        job_text=job_text,
        job_table=job_table,
        seeds=tuple(seeds),
        engine=reader.one_of(lab, "engine", "simulated", ENGINES),
        metric=reader.one_of(lab, "metric", metrics[0], metrics),
        baseline=reader.one_of(lab, "baseline", names[0], names),
        target_loss=target,
        generate=generate,
        settings=reader.settings("set", raw.get("set", {})),
        conditions=conditions,
        entries=tuple(entries),
        search=search,
    )
