"""Makes one trace.json of a run, for Perfetto (ui.perfetto.dev), from the traces of the workers in logs/."""

import json


def merge(run_dir):
    """Joins logs/trace-*.json into trace.json, with times relative to the first event, and removes the parts.

    `otherData` has for each worker the description of its sample (worker/train/trace.h). Returns the path; None if
    there is no trace. Parts that cannot be read are not removed.
    """
    events, others, read = [], {}, []
    for part in sorted((run_dir / "logs").glob("trace-*.json")):
        try:
            found = json.loads(part.read_text(encoding="utf-8"))
            events += found["traceEvents"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        others[part.stem.removeprefix("trace-")] = found.get("otherData", {})
        read.append(part)
    if not read:
        return None
    start = min((event["ts"] for event in events if "ts" in event), default=0)
    for event in events:
        if "ts" in event:
            event["ts"] = round(event["ts"] - start, 3)
    path = run_dir / "trace.json"
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        file.write(",\n".join(json.dumps(event, separators=(",", ":")) for event in events))
        file.write(f'\n],"otherData":{json.dumps(others, separators=(",", ":"))}}}\n')
    for part in read:
        part.unlink()
    return path
