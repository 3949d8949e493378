"""Write the tables of README.md from the result files: python -m benchmarks.readme."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.record import load

README = Path(__file__).parents[1] / "README.md"
_NAMES = {
    ("mention", "f1"): "mentions, strict F1",
    ("end_to_end", "f1"): "end to end, strict F1",
    ("gold", "accuracy@1"): "gold mentions, accuracy@1 (all ids right)",
    ("gold_any", "accuracy@1"): "gold mentions, accuracy@1 (any id right)",
}


def main_job_table(rows: list[dict[str, Any]]) -> str:
    """BC5CDR dev: one line a measure, the pipeline beside its lexical floor."""
    accuracy = [row for row in rows if row["question"] == "accuracy"]
    cell = {(r["system"], r["protocol"], r["metric"]): r for r in accuracy}
    lines = [
        "| BC5CDR dev (trained on train; KB: all MeSH diseases and chemicals) | n | ResCNN pipeline"
        " | without the encoder |",
        "|---|---|---|---|",
    ]
    for (protocol, metric), name in _NAMES.items():
        ours, floor = cell["rescnn", protocol, metric], cell["lexical", protocol, metric]
        interval = f"{ours['value']:.1f} ({ours['low']:.1f}-{ours['high']:.1f})"
        lines.append(f"| {name} | {ours['n']:,} | {interval} | {floor['value']:.1f} |")
    seeds = sorted({row["seed"] for row in accuracy})
    about = accuracy[0]
    lines += [
        "",
        f"Seed {', '.join(map(str, seeds))}; 95 % intervals by document bootstrap; "
        f"`{about['command']}`; {about['machine']}; {about['date']}.",
    ]
    return "\n".join(lines)


def main() -> None:
    table = main_job_table(load("main_job"))
    text = README.read_text("utf8")
    block = f"<!-- RESULTS START -->\n{table}\n<!-- RESULTS END -->"
    pattern = r"<!-- RESULTS START -->.*?<!-- RESULTS END -->"
    README.write_text(re.sub(pattern, lambda _: block, text, flags=re.DOTALL), encoding="utf8")


if __name__ == "__main__":
    main()
