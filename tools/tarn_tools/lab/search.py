"""The [search] of a LAB.toml: instead of a grid, Optuna's sampler (TPE) proposes the points of each algorithm under
each condition. Points are proposed in rounds of `at_a_time` (the last may be smaller), and each is judged by its mean score
on the validation set over the seeds. The sampler has a fixed seed and depends only on the scores, so a simulated study
repeats to the bit. An interrupted study continues."""

from tarn_tools.lab import results
from tarn_tools.lab.study import StudyError

# The score of a point with a failed or diverged trial: the worst possible. The exact value does not matter, because the
# sampler only compares scores.
WORST = {"auc": 0.0, "accuracy": 0.0, "logloss": 1e9}


def _optuna(study):
    try:
        import optuna
    except ImportError as error:
        raise StudyError(f"{study.path}: search: needs Optuna: pip install optuna, or a [grid] instead") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _suggested(trial, space):
    """A point: key -> value."""
    point = {}
    for key, values in space.items():
        if isinstance(values, list):
            point[key] = trial.suggest_categorical(key, values)
        elif isinstance(values["low"], int) and isinstance(values["high"], int):
            point[key] = trial.suggest_int(key, values["low"], values["high"], log=values.get("log", False))
        else:
            point[key] = float(f"{trial.suggest_float(key, values['low'], values['high'], log=values.get('log', False)):.6g}")
    return point


def _score(study, outcomes):
    """The mean validation score of a point's trials; WORST if one has none."""
    scores = [results.of_trial(study, outcome)["choice"] for outcome in outcomes]
    return WORST[study.metric] if None in scores else sum(scores) / len(scores)


def rounds(search):
    """The number of points of each round."""
    return [min(search["at_a_time"], search["points"] - begin) for begin in range(0, search["points"], search["at_a_time"])]


def run(study, run_trials):
    """Outcomes of all trials. run_trials(trials, where) returns those of a round; `where` names the round in the
    progress."""
    optuna = _optuna(study)
    direction = "maximize" if study.more_is_better else "minimize"
    pairs = [(condition, entry) for condition in study.conditions for entry in study.entries]
    samplers = {
        (condition, entry.name): optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=study.search["seed"]))
        for condition, entry in pairs
    }
    outcomes, known = [], {}  # by the trial's folder: a point may be proposed twice
    counts = rounds(study.search)
    for index, count in enumerate(counts):
        asked = []  # (sampler, Optuna's trial, our trials)
        for condition, entry in pairs:
            sampler = samplers[condition, entry.name]
            for proposed in [sampler.ask() for _ in range(count)]:
                point = entry.resolved(_suggested(proposed, study.search["space"]))
                asked.append((sampler, proposed, study.trials_of(condition, entry, point)))
        new = {trial.folder: trial for _, _, trials in asked for trial in trials if trial.folder not in known}
        found = run_trials(list(new.values()), f"round {index + 1} of {len(counts)}: ")
        known.update({outcome.trial.folder: outcome for outcome in found})
        outcomes += found
        for sampler, proposed, trials in asked:
            sampler.tell(proposed, _score(study, [known[trial.folder] for trial in trials]))
    return outcomes
