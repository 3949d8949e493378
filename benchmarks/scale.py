"""Write the tables of docs/scale.md from benchmarks/results: python -m benchmarks.scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.markdown import MISSING, select, table
from benchmarks.readme import write_block
from benchmarks.record import RESULTS, load

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
ABSTRACTS = 36e6
NAMES = 10e6
CORES = 160
CORES_OF_A_MACHINE = 16
GROWN = 1_000_000, 2_000_000  # names before and after the last step of `benchmarks.growth`
# 192 numbers of 16 bits, a scale, a digest of the name, and what the approximate index has of it.
BYTES_OF_A_VECTOR = 192 * 16 // 8 + 4 + 16 + 60


class Figures:
    """Figures by symbol; None where nothing was measured yet."""

    def __init__(self) -> None:
        self.document = _value("spark", metric="processor_seconds_a_document")
        self.start = _value("spark", metric="processor_seconds_to_start")
        self.worker = _value("spark", metric="megabytes")
        self.written = _value("spark", metric="bytes_a_document")
        self.different = _value("spark", metric="different_rows")
        (build,) = select(load("knowledge_base"), question="build")
        (size,) = select(load("knowledge_base"), question="size")
        self.build = build["value"] / build["n"]
        self.disk = size["value"] * 1e6 / size["n"]
        steps = [_value("growth", question=q, names=GROWN[1]) for q in ("add", "encode")]
        self.encode = _of(lambda add, encode: (add + encode) / (GROWN[1] - GROWN[0]), *steps)
        speed = [_value("reading_speed", system=s, max_pieces=64) for s in ("light", "collective")]
        self.transformer = _of(lambda light, read: light / read, *speed)


def measured_table(found: Figures) -> str:
    lines = [
        ["`d`", "processor seconds a document", _show(found.document, ".4f"), "spark"],
        ["`s`", "processor seconds until the first document", _show(found.start, ".1f"), "spark"],
        ["`w`", "MB of the process at its peak, mapped files too", _show(found.worker), "spark"],
        ["`o`", "bytes of JSON written a document", _show(found.written), "spark"],
        ["`b`", "seconds a name, build", _show(found.build, ".6f"), "knowledge_base"],
        ["`k`", "bytes a name on disk, no vectors", _show(found.disk), "knowledge_base"],
        ["`e`", "seconds a name, add and encode, index too", _show(found.encode, ".6f"), "growth"],
        ["`t`", "transformer: times slower", _show(found.transformer, ".1f"), "reading_speed"],
        ["", "rows by Spark that differ", _show(found.different), "spark"],
    ]
    rows = [[*line[:3], f"`{line[3]}.json`"] for line in lines]
    return table(["", "figure", "measured", "`benchmarks/results/`"], rows) + _about()


def pubmed_table(found: Figures) -> str:
    hours = _of(lambda d: ABSTRACTS * d / 3600, found.document)
    lines = [
        ["core-hours", "`36 · 10⁶ · d / 3600`", _show(hours)],
        ["hours on 10 machines of 16 cores", "core-hours / 160", _show(hours, ".1f", 1 / CORES)],
        [
            "core-hours, reading with a transformer",
            "`core-hours · t`",
            _show(_of(lambda h, t: h * t, hours, found.transformer)),
        ],
        [
            "GB of memory, 16 workers",
            "at most `16 w`: they share the knowledge base",
            _show(found.worker, ".1f", CORES_OF_A_MACHINE / 1e3),
        ],
        [
            "GB of JSON lines",
            "`36 · 10⁶ · o`",
            _show(found.written, ",.0f", ABSTRACTS / 1e9),
        ],
        ["core-hours of loading", "`160 s / 3600`", _show(found.start, ".1f", CORES / 3600)],
    ]
    return table(["PubMed, 36 million abstracts", "formula", "result"], lines)


def names_table(found: Figures) -> str:
    bytes_a_name = found.disk + BYTES_OF_A_VECTOR
    lines = [
        ["minutes, build", "`10⁷ b`", _show(found.build, ".0f", NAMES / 60)],
        [
            "minutes, add and encode, index too, one core",
            "`10⁷ e`",
            _show(found.encode, ".0f", NAMES / 60),
        ],
        [
            "GB of disk",
            f"`10⁷ (k + {BYTES_OF_A_VECTOR})`: vectors of 192 numbers, 16 bits, and their index",
            _show(bytes_a_name, ".1f", NAMES / 1e9),
        ],
        [
            "GB of memory, once a machine",
            "at most the same: pages of these files",
            _show(bytes_a_name, ".1f", NAMES / 1e9),
        ],
    ]
    return table(["10 million names", "formula", "result"], lines)


def _value(name: str, **fields: object) -> float | None:
    if not (RESULTS / f"{name}.json").is_file():
        return None
    rows = select(load(name), **fields)
    return rows[0]["value"] if rows else None


def _of(formula: Callable[..., float], *values: float | None) -> float | None:
    return None if None in values else formula(*values)


def _show(value: float | None, format: str = ",.0f", times: float = 1) -> str:
    return MISSING if value is None else f"{value * times:{format}}"


def _about() -> str:
    if not (RESULTS / "spark.json").is_file():
        return ""
    (row,) = select(load("spark"), metric="processor_seconds_a_document")
    (rows,) = select(load("spark"), metric="different_rows")
    return (
        f"\n\n`d`, `w` and `o`: light pipeline, package's knowledge base, {row['n']:,} texts of "
        f"{row['characters']:,} characters on average. Rows: {rows['n']:,} documents, "
        f"{rows['failed']} of which fails, {rows['mentions']:,} mentions. `{row['command']}`; "
        f"{row['machine']}; {row['date']}. {row['note'].capitalize()}."
    )


def main() -> None:
    found = Figures()
    text = PAGE.read_text("utf8")
    blocks = {"MEASURED": measured_table, "PUBMED": pubmed_table, "NAMES": names_table}
    for name, make in blocks.items():
        text = write_block(text, name, make(found))
    PAGE.write_text(text, encoding="utf8")


if __name__ == "__main__":
    main()
