"""The results of a study: figures of each trial, the best point of each algorithm, and how it compares.

Everything here follows from the study and from the run folders' deterministic figures, so that a repeated simulated
study gives the same results.json, byte by byte.
"""

import csv
import itertools
import json
import math
import random
import statistics

CURVE_POINTS = 100
SCORES = ("auc", "logloss", "accuracy")
SMOOTH = 5  # points of the curve whose mean must reach the target
LOSS_DIVERGED = 10  # training log-loss above which a run has diverged, though its numbers are finite
PAIRS_MAX = 14  # up to this number of pairs, all sign flips are tried
FLIPS = 20_000  # random sign flips that are tried for more pairs


def _number(value):
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def _curve(folder):
    """[(seconds, samples, bytes, loss)] of a simulated run."""
    try:
        with open(folder / "curve.csv", encoding="utf-8", newline="") as file:
            rows = [tuple(float(row[key]) for key in ("seconds", "samples", "bytes", "loss")) for row in csv.DictReader(file)]
    except (OSError, KeyError, ValueError):
        return []
    return [row for row in rows if all(math.isfinite(value) for value in row)]


def _real_curve(folder):
    """[(seconds, samples, bytes, loss)] of a real run, from its metrics.jsonl."""
    points, last = [], None
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    sums, begun = {}, None
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record.get("role") == "worker" and _number(record.get("loss_rows")) is not None:
            sums[record.get("rank")] = record
        if record.get("role") != "scheduler" or not sums:
            continue
        begun = record["time"] if begun is None else begun
        total = [sum(_number(each.get(key)) or 0 for each in sums.values()) for key in ("loss_sum", "loss_rows", "pull_bytes", "push_bytes")]
        if last is not None and total[1] > last[1]:
            loss = (total[0] - last[0]) / (total[1] - last[1])
            points.append((record["time"] - begun, _number(record.get("samples")) or 0, total[2] + total[3], loss))
        last = total
    return points


def smoothed(curve):
    """The curve with the mean loss of up to SMOOTH points."""
    found = []
    for index in range(len(curve)):
        window = [row[3] for row in curve[max(0, index - SMOOTH + 1) : index + 1]]
        found.append((*curve[index][:3], sum(window) / len(window)))
    return found


def to_target(curve, target):
    """Seconds, samples and bytes until the smoothed loss has reached the target; None if it never does or there is no
    target."""
    if target is None:
        return None
    for index, (seconds, samples, size, loss) in enumerate(smoothed(curve)):
        if index + 1 >= SMOOTH and loss <= target:
            return {"seconds": seconds, "samples": samples, "bytes": size}
    return None


def _scores(summary):
    """{"valid_auc": ..., "test_auc": ...} of the best epoch: the last of those that were the best so far."""
    epochs = summary.get("epochs") or []
    best = next((epoch for epoch in reversed(epochs) if epoch.get("best")), epochs[-1] if epochs else {})
    return {f"{data_set}_{score}": _number((best.get(data_set) or {}).get(score))
            for data_set in ("valid", "test") for score in SCORES}


def _cost(summary, simulated):
    """Seconds, bytes and messages of a run. Simulated bytes are those of whole messages, real ones those of keys and
    values."""
    if simulated:
        of = summary.get("simulated") or {}
        return {key: of.get(key) for key in ("seconds", "bytes", "messages")}
    sizes = [_number(summary.get(key)) for key in ("pull_bytes", "push_bytes")]
    return {"seconds": _number(summary.get("train_seconds")), "bytes": None if None in sizes else sum(sizes), "messages": None}


def _last_loss(found, curve):
    """The training log-loss at the end: the largest of the curve's end, the last epoch's mean and the summary's."""
    epochs = found.get("epochs") or [{}]
    losses = [_number(found.get("train_logloss")), _number((epochs[-1].get("train") or {}).get("logloss")),
              smoothed(curve)[-1][3] if curve else None]
    return max((loss for loss in losses if loss is not None), default=None)


def of_trial(study, outcome):
    """The record of one trial in results.json."""
    trial, found = outcome.trial, {}
    status, reason = outcome.status, outcome.reason
    try:
        found = json.loads((outcome.folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if status == "done":
            status, reason = "failed", f"no summary: {error}"
    loss = _number(found.get("train_logloss"))  # of the best epoch
    simulated = study.engine == "simulated"
    curve = _curve(outcome.folder) if simulated else _real_curve(outcome.folder)
    ends_at = _last_loss(found, curve)
    if status == "done" and ends_at is not None and ends_at > LOSS_DIVERGED:
        status, reason = "diverged", f"the training log-loss ends at {ends_at:.3g}"
    scores = _scores(found)
    of = "test" if scores[f"test_{study.metric}"] is not None else "valid"
    record = {
        "condition": trial.condition,
        "algorithm": trial.algorithm,
        "point": dict(trial.point),
        "seed": trial.seed,
        "status": status,
        "reason": reason,
        "folder": f"trials/{trial.folder}",
        "overrides": list(trial.overrides),
        **scores,
        "quality": scores[f"{of}_{study.metric}"] if status == "done" else None,
        "choice": scores[f"valid_{study.metric}"] if status == "done" else None,
        "train_logloss": loss,
        "samples": found.get("samples"),
        **_cost(found, simulated),
        "parameters_hash": found.get("parameters_hash"),
    }
    for name in ("staleness", "gradient_delay"):
        for part in ("mean", "max", "histogram"):
            record[f"{name}_{part}"] = found.get(f"{name}_{part}")
    record["to_target"] = to_target(curve, study.target_loss) if status == "done" else None
    step = max(1, math.ceil(len(curve) / CURVE_POINTS))
    record["curve"] = [list(row) for row in smoothed(curve)[step - 1 :: step]]
    return record


def _mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else None


def sign_flip_p(differences):
    """The two-sided p-value of a paired permutation test: the share of sign flips whose mean is at least as far from 0.
    Tries all flips or, with more than PAIRS_MAX pairs, the given signs and FLIPS random ones, the same each time. None
    without pairs."""
    if not differences:
        return None
    seen = abs(sum(differences)) - 1e-15
    if len(differences) <= PAIRS_MAX:
        flips = list(itertools.product((1, -1), repeat=len(differences)))
    else:
        random_flips = random.Random(len(differences))
        flips = [[1] * len(differences), *(random_flips.choices((1, -1), k=len(differences)) for _ in range(FLIPS))]
    return sum(abs(sum(sign * d for sign, d in zip(signs, differences))) >= seen for signs in flips) / len(flips)


def choose(study, records):
    """The records of an algorithm's best point: of the points with the fewest diverged or failed trials, the one with
    the best mean validation score over the seeds."""
    points = {}
    for record in records:
        points.setdefault(json.dumps(record["point"], sort_keys=True), []).append(record)

    def rank(item):
        of_point = item[1]
        score = _mean([record["choice"] for record in of_point])
        bad = sum(record["status"] != "done" for record in of_point)
        if score is None:
            return (bad, math.inf)
        return (bad, -score if study.more_is_better else score)

    return min(points.items(), key=rank)[1]


def _spread(values):
    values = [value for value in values if value is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "n": len(values)}


def compare(study, records):
    """One row for each condition and algorithm, at the algorithm's own best point."""
    rows, chosen = [], {}
    for condition in study.conditions:
        for entry in study.entries:
            of = [record for record in records if record["condition"] == condition and record["algorithm"] == entry.name]
            chosen[condition, entry.name] = choose(study, of)
    for (condition, algorithm), best in chosen.items():
        base = {record["seed"]: record["quality"] for record in chosen[condition, study.baseline]}
        pairs = [(record["quality"], base.get(record["seed"])) for record in best]
        differences = [mine - other for mine, other in pairs if mine is not None and other is not None]
        ended = [record for record in best if record["status"] == "done"]
        tried = [record for record in records if record["condition"] == condition and record["algorithm"] == algorithm]
        rows.append({
            "condition": condition,
            "algorithm": algorithm,
            "point": best[0]["point"],
            "quality": _spread([record["quality"] for record in best]),
            "difference": _mean(differences) if algorithm != study.baseline else None,
            "p": sign_flip_p(differences) if algorithm != study.baseline else None,
            "diverged": sum(record["status"] == "diverged" for record in tried),
            "failed": sum(record["status"] == "failed" for record in tried),
            "trials": len(tried),
            "seeds": len(best),
            "train_logloss": _spread([record["train_logloss"] for record in ended]),
            "seconds": _spread([record["seconds"] for record in ended]),
            "bytes": _spread([record["bytes"] for record in ended]),
            "seconds_to_target": _spread([(record["to_target"] or {}).get("seconds") for record in best]),
            "bytes_to_target": _spread([(record["to_target"] or {}).get("bytes") for record in best]),
            "reached_target": sum(record["to_target"] is not None for record in best),
            "staleness_mean": _mean([record["staleness_mean"] for record in ended]),
            "gradient_delay_mean": _mean([record["gradient_delay_mean"] for record in ended]),
            "gradient_delay_max": max((record["gradient_delay_max"] or 0 for record in ended), default=0),
        })
    return rows


def of_study(study, outcomes):
    """The contents of results.json."""
    records = [of_trial(study, outcome) for outcome in outcomes]
    return {
        "name": study.name,
        "about": study.about,
        "sha256": study.sha256,
        "engine": study.engine,
        "metric": study.metric,
        "baseline": study.baseline,
        "target_loss": study.target_loss,
        "search": study.search,
        "seeds": list(study.seeds),
        "conditions": {name: settings for name, settings in study.conditions.items()},
        "algorithms": [{"name": entry.name, "use": list(entry.use), "settings": dict(entry.settings)} for entry in study.entries],
        "comparison": compare(study, records),
        "trials": records,
    }
