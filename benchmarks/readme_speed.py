"""The README's tables of speed and memory."""

from __future__ import annotations

from benchmarks.markdown import Row, select, table

_ENCODERS = {
    "rescnn": "ResCNN, as it links",
    "rescnn_float32": "the same network as it is trained, float32",
    "minilm": "MiniLM-L6, float32, padded batches",
    "minilm_best": "MiniLM-L6 at its best here",
    "bert": "BERT-base-shaped, float32, padded batches",
    "bert_best": "BERT-base-shaped at its best here",
}
_QUESTIONS = {
    "index": ("index of all names, seconds", "{:,.1f} times as fast"),
    "load": ("first answer of a new process, seconds", "{:,.1f} times as fast"),
    "throughput": ("mentions of documents a second", "{:,.1f} times as many"),
    "different": ("different strings a second", "{:,.1f} times as many"),
    "memory": ("memory of the process at its peak, MB", "{:.2f} of it"),
    "own": ("of it beyond imported libraries, MB", "{:.2f} of it"),
    "accuracy": ("accuracy@1, names alone, %", "{:.3f} of it"),
}
_PIPELINES = {"scispacy": "stock NER and scispaCy's linker", "light": "bioel, light pipeline"}


def encoding_table(rows: list[Row]) -> str:
    lines = []
    for system, name in _ENCODERS.items():
        numbers = {row["metric"]: row["value"] for row in select(rows, system=system)}
        ratio = "" if system == "rescnn" else f"{numbers['ratio']:.1f}"
        speeds = [f"{numbers[m]:,.0f}" for m in ("names_per_second", "mentions_per_second")]
        lines.append([name, *speeds, ratio])
    columns = ["encoder", "names a second", "mentions encoded and searched", "ResCNN is faster"]
    first = rows[0]
    note = (
        f"From strings to vectors, threads: {first['threads']}; searched exactly among "
        f"{first['searched']:,} vectors. "
        f"{_source(first)}"
    )
    return f"{table(columns, lines)}\n\n{note}"


def scispacy_table(rows: list[Row]) -> str:
    lines = []
    for question, (name, beside) in _QUESTIONS.items():
        of_question = select(rows, question=question)
        values = [
            f"{select(of_question, system=system, metric='value')[0]['value']:,.1f}"
            for system in ("scispacy", "rescnn")
        ]
        ratio = select(of_question, metric="ratio")[0]["value"]
        lines.append([name, *values, beside.format(ratio)])
    first = rows[0]
    columns = [f"{first['names']:,} names", "scispaCy", "bioel", "beside scispaCy"]
    note = (
        f"{first['mentions']:,} mentions of {first['documents']:,} documents, then {first['n']:,} "
        f"different strings, medians of three by turns; accuracy of {first['gold']:,} mentions "
        f"of dev. {_source(first)}"
    )
    return f"{table(columns, lines)}\n\n{note}"


def documents_table(rows: list[Row]) -> str:
    lines = []
    for system, name in _PIPELINES.items():
        numbers = {row["metric"]: row["value"] for row in select(rows, system=system)}
        cells = [
            f"{numbers['documents_per_second']:,.1f}",
            f"{numbers['megabytes']:,.0f}",
            f"{numbers['mentions']:,.0f}",
            f"{numbers['links']:,.0f}",
        ]
        lines.append([name, *cells])
    ratio = select(rows, metric="ratio")[0]["value"]
    columns = ["BC5CDR dev", "documents a second", "MB", "mentions", "linked"]
    note = f"{ratio:.1f} times the documents, {rows[0]['n']} of them, medians of three by turns. "
    note += _source(rows[0])
    return f"{table(columns, lines)}\n\n{note}"


def roofline_table(rows: list[Row]) -> str:
    found = {(row["system"], row["metric"]): row["value"] for row in rows}
    precision = rows[0]["precision"]
    (searched,) = (m.removeprefix("of_peak_") for s, m in found if m.startswith("of_peak_"))
    lines = [
        [
            f"encoder ({precision})",
            f"{found['encoder', 'gigaflops']:.0f} GFLOP/s",
            f"{found['peak', f'gigaflops_{precision}']:.0f} GFLOP/s",
            f"{100 * found['encoder', 'of_peak']:.0f} %",
        ],
        [
            f"exact search, 256 queries ({searched})",
            f"{found['search', 'gigaflops']:.0f} GFLOP/s",
            f"{found['peak', f'gigaflops_{searched}']:.0f} GFLOP/s",
            f"{100 * found['search', f'of_peak_{searched}']:.0f} %",
        ],
        [
            "the same, bytes of the vectors read",
            f"{found['search', 'gigabytes_per_second']:.1f} GB/s",
            f"{found['peak', 'gigabytes_per_second']:.1f} GB/s (copy)",
            "",
        ],
    ]
    columns = ["one core", "reached", "measured peak", "part"]
    return f"{table(columns, lines)}\n\n{_source(rows[0])}"


def _source(row: Row) -> str:
    note = f" {row['note'][:1].upper()}{row['note'][1:]}." if row.get("note") else ""
    return f"One run: `{row['command']}`; {row['machine']}; {row['date']}.{note}"
