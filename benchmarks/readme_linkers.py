"""The README's tables of linking in bare text, and of the kinds of linkers."""

from __future__ import annotations

from statistics import fmean

from benchmarks.markdown import (
    CORPORA,
    MISSING,
    Row,
    commands_note,
    in_order,
    mean_of,
    seeds_of,
    select,
    table,
)
from benchmarks.record import load

_SYSTEMS = {
    "rescnn": "CNN, light linker",
    "transformer": "MiniLM, light linker",
    "dual_encoder": "MiniLM, dual encoder",
    "dual_encoder_strings": "the same, strings alone",
    "dual_encoder_context": "the same, reading alone",
    "reranker": "reranker alone, 100 documents",
    "reranker_strings": "the same, strings alone",
}
_COLUMNS = {
    ("mention", "f1"): "mentions, strict F1",
    ("strict", "f1"): "end to end, strict F1",
    ("partial", "f1"): "overlap F1",
    ("partial_fractional", "f1"): "fractional F1",
    ("gold", "accuracy@1_nil_ignored"): "gold mentions, accuracy@1, NIL ignored",
    ("gold", "mrr"): "MRR",
    ("gold", "recall@10"): "recall@10",
}
_SUBSETS = (
    "",
    "seen string",
    "unseen string, seen concept",
    "unseen concept",
    "ambiguous name",
)
# All linkers on gold mentions of BC5CDR dev, any id right: name, result file, and which rows.
_ACCURACY = "accuracy@1_nil_ignored"
_ANY = ("gold_any", _ACCURACY)
_OF_STRINGS = ("biosyn", "accuracy@1")
# Then its name in reading_speed.json.
_ALL = {
    "exact names and training strings": ("linking", "exact", *_OF_STRINGS, "exact"),
    "TF-IDF": ("linking", "tfidf", *_OF_STRINGS, "tfidf"),
    "as BioSyn: ResCNN and TF-IDF": ("linking", "biosyn", *_OF_STRINGS, "biosyn"),
    "ResCNN alone": ("linking", "dense", *_OF_STRINGS, "dense"),
    "light linker: all evidence of strings": (
        "linking",
        "rescnn",
        *_OF_STRINGS,
        "light",
    ),
    "dual encoder alone": ("end_to_end", "dual_encoder_context", *_ANY, "collective"),
    "dual encoder and strings": ("end_to_end", "dual_encoder", *_ANY, "collective"),
    "reranker, 100 documents": ("end_to_end", "reranker", *_ANY, "rerank"),
    "hierarchical, closed vocabulary alone": (
        "multitask",
        "hierarchical",
        "gold_any_closed",
        _ACCURACY,
        "",
    ),
    "hierarchical, open vocabulary alone": (
        "multitask",
        "hierarchical",
        "gold_any_open_alone",
        _ACCURACY,
        "",
    ),
    "hierarchical, open vocabulary and strings": (
        "multitask",
        "hierarchical",
        "gold_any_open",
        _ACCURACY,
        "",
    ),
    "multi-task, closed vocabulary alone": (
        "multitask",
        "multitask",
        "gold_any_closed",
        _ACCURACY,
        "closed",
    ),
    "multi-task, open vocabulary alone": (
        "multitask",
        "multitask",
        "gold_any_open_alone",
        _ACCURACY,
        "open",
    ),
    "multi-task, open vocabulary and strings": (
        "multitask",
        "multitask",
        "gold_any_open",
        _ACCURACY,
        "open",
    ),
    "generative alone": ("generative", "generated", "gold_any", "recall@1", "generative"),
    "generative and strings": ("generative", "both", "gold_any", "recall@1", "generative"),
}
_VARIANTS = {
    "pt_single": "per token, single task",
    "pt_multi": "per token, multi-task",
    "pt_hierarchical": "per token, hierarchical",
    "pt_levels": "per token, levels, sum of tasks",
    "pe_single": "per entity, single tasks",
    "pe_multi": "per entity, multi-task",
    "pe_hierarchical": "per entity, hierarchical",
    "pe_levels": "per entity, levels, sum of tasks",
}
# Advice on each kind, and the systems that have its accuracy.
_KINDS = {
    "light": ("light: strings alone", "dual_encoder_strings", "no GPU, millions of documents"),
    "collective": (
        "dual encoder: documents read once",
        "dual_encoder",
        "a transformer reads the documents anyway, to find mentions",
    ),
    "single": ("the same, mention by mention", "", "never: for comparison"),
    "rerank": (
        "reranker: each candidate read in context",
        "reranker",
        "few mentions, or a GPU",
    ),
}


def end_to_end_table(rows: list[Row]) -> str:
    """One line a corpus and system, then parts of the given mentions."""
    lines = []
    for corpus in in_order(CORPORA, rows, "corpus"):
        of_corpus = select(rows, corpus=corpus, subset="")
        for system in in_order(_SYSTEMS, of_corpus, "system"):
            of_line = select(of_corpus, system=system)
            cells = [
                _mean(select(of_line, protocol=protocol, metric=metric), interval=metric == "f1")
                for protocol, metric in _COLUMNS
            ]
            name = f"{CORPORA.get(corpus, corpus)} {of_line[0]['split']}"
            lines.append([name, _SYSTEMS.get(system, system), seeds_of(of_line), *cells])
    columns = ["corpus", "detector and linker", "seeds", *_COLUMNS.values()]
    return f"{table(columns, lines)}\n\n{_subset_table(rows)}"


def _subset_table(rows: list[Row]) -> str:
    accuracy = select(rows, protocol="gold_any", metric="accuracy@1_nil_ignored")
    lines = []
    for corpus in in_order(CORPORA, accuracy, "corpus"):
        of_corpus = select(accuracy, corpus=corpus)
        for system in in_order(_SYSTEMS, of_corpus, "system"):
            parts = [select(of_corpus, system=system, subset=name) for name in _SUBSETS]
            cells = list(map(mean_of, parts))
            lines.append([CORPORA.get(corpus, corpus), _SYSTEMS.get(system, system), *cells])
    columns = ["gold mentions, any id right, NIL ignored (n)", "", "all", *_SUBSETS[1:]]
    return table(columns, lines)


def kinds_table(speed: list[Row]) -> str:
    """One line a kind of linker: how good, how fast, how large, and what for."""
    accuracy = select(load("end_to_end"), corpus="bc5cdr", subset="")
    ratios = select(speed, system="rerank", metric="collective_is_faster")
    # The pairs of training/configs/reranker.cfg are the shortest that were measured.
    speed = [row for row in speed if row["max_pieces"] == min(r["max_pieces"] for r in ratios)]
    lines = []
    for kind, (name, system, when) in _KINDS.items():
        found = select(accuracy, system=system, protocol="gold", metric="accuracy@1_nil_ignored")
        numbers = {row["metric"]: row["value"] for row in select(speed, system=kind)}
        lines.append(
            [
                name,
                mean_of(found),
                f"{numbers['mentions_per_second']:,.0f}",
                f"{1 / numbers['collective_is_faster']:.2f}",
                f"{numbers['megabytes']:.0f}",
                when,
            ]
        )
    columns = [
        "linker",
        "BC5CDR dev, gold mentions, accuracy@1, NIL ignored (n)",
        "mentions per processor second",
        "speed beside the dual encoder",
        "MB, KB aside",
        "when",
    ]
    about = speed[0]
    by_length = ", ".join(f"{r['value']:.0f} times ({r['max_pieces']})" for r in ratios)
    note = (
        "The dual encoder is faster than the reranker, by the word pieces that a pair may have: "
        f"{by_length}. One run: {about['n']:,} gold mentions against {about['names']:,} names; "
        f"`{about['command']}`; {about['machine']}; {about['date']}."
    )
    return f"{table(columns, lines)}\n\n{note}"


def all_linkers_table(rows: list[Row]) -> str:
    """One line a linker of the package, all on the same mentions, and its costs.

    rows (list[Row]): Of generative.json; the other files are read here.
    """
    files = {name: load(name) for name in ("linking", "end_to_end", "multitask")}
    files["generative"] = rows
    speed = select(load("reading_speed"), corpus="bc5cdr")
    speed = [row for row in speed if row["max_pieces"] == min(r["max_pieces"] for r in speed)]
    all_mentions = max(row["n"] for row in select(rows, corpus="bc5cdr", subset=""))
    lines = []
    for name, (file, system, protocol, metric, kind) in _ALL.items():
        wanted = {"corpus": "bc5cdr", "subset": "", "system": system}
        found = select(files[file], protocol=protocol, metric=metric, **wanted)
        costs = {row["metric"]: row["value"] for row in select(speed, system=kind)}
        cells = [MISSING, MISSING, MISSING]
        if found:
            # The other protocol leaves out mentions whose ids the KB lacks; here they are wrong.
            n = found[0]["n"]
            counted = all_mentions if file == "linking" else n
            value = fmean(row["value"] for row in found) * n / counted
            cells = [f"{value:.1f}", f"{counted:,}", seeds_of(found)]
        if costs:
            cells += [f"{costs['mentions_per_second']:,.0f}", f"{costs['megabytes']:.0f}"]
        lines.append([name, *cells, *[MISSING] * (5 - len(cells))])
    columns = [
        "linker",
        "BC5CDR dev, gold mentions, first candidate, any id right",
        "n",
        "seeds",
        "mentions per processor second",
        "MB, KB aside",
    ]
    about = speed[0]
    note = (
        "Ids that the knowledge base lacks count as wrong. Commands: `benchmarks/results/`. "
        f"Speeds: one run, {about['n']:,} gold mentions against {about['names']:,} names; "
        f"`{about['command']}`; {about['machine']}; {about['date']}."
    )
    return f"{table(columns, lines)}\n\n{note}"


def vocabularies_table(rows: list[Row]) -> str:
    """Closed against open vocabulary of the same training: end to end, then by concept."""
    names = {
        "closed": "closed vocabulary alone",
        "closed_nil": "the same with a NIL threshold",
        "open_alone": "open vocabulary alone",
        "open": "open vocabulary and strings",
    }
    lines = []
    for corpus in in_order(CORPORA, rows, "corpus"):
        with_open = {r["system"] for r in select(rows, corpus=corpus, protocol="open")}
        for system in sorted(with_open, reverse=True):  # multitask first
            of_system = select(rows, corpus=corpus, system=system)
            for protocol, name in names.items():
                found = select(of_system, protocol=protocol)
                parts = [
                    select(found, subset=subset, metric="recall")
                    for subset in ("seen concept", "unseen concept")
                ]
                cells = list(map(mean_of, parts))
                whole = select(found, subset="", metric="f1")
                f1 = mean_of(whole)
                line = [CORPORA.get(corpus, corpus), system, name, seeds_of(found), f1, *cells]
                lines.append(line)
    columns = ["dev", "config", "linked by", "seeds", "strict F1 end to end (gold mentions)"]
    recalls = [f"recall, {concept} concept (n)" for concept in ("seen", "unseen")]
    made = [row for row in rows if not row.get("trunk") and row["protocol"] == "open"]
    return f"{table([*columns, *recalls], lines)}\n\n{commands_note(made, 'multitask')}"


def variants_table(rows: list[Row]) -> str:
    """Variants of the paper on the first layers of a transformer: means over seeds."""
    short = [row for row in rows if row.get("trunk")]
    lines = []
    for corpus in in_order(CORPORA, short, "corpus"):
        for system in in_order(_VARIANTS, short, "system"):
            found = select(short, corpus=corpus, system=system, subset="")
            cells = [
                _mean(select(found, protocol=protocol, metric="f1"))
                for protocol in ("mention_unlabelled", "mention", "closed")
            ]
            name = _VARIANTS.get(system, system)
            if found:
                lines.append([CORPORA.get(corpus, corpus), name, seeds_of(found), *cells])
    columns = ["dev", "variant", "seeds", "mentions, strict F1", "with types", "linked too"]
    n = max((row["n"] for row in short if row["n"]), default=0)
    note = f"{n:,} gold mentions. {commands_note(short, 'multitask')}"
    return f"{table(columns, lines)}\n\n{note}"


def _mean(rows: list[Row], *, interval: bool = False) -> str:
    if not rows:
        return MISSING
    value = f"{fmean(row['value'] for row in rows):.1f}"
    if not interval:
        return value
    return f"{value} ({fmean(r['low'] for r in rows):.1f}-{fmean(r['high'] for r in rows):.1f})"
