"""Measure finding and linking of mentions in bare text, and the gain of contextual models.

python -m benchmarks.run end_to_end CORPUS SYSTEM records the development figures of the pipeline
that `project run all . --vars.corpus CORPUS --vars.config SYSTEM` has made. For a contextual linker
it also records two variants with the same weights, tuned on dev too: SYSTEM_strings uses only the
mention strings, and SYSTEM_context (dual encoders) only the contextual scores.

main_job records the figures of `bioel evaluate` on dev for the pipeline that `project run all .
--vars.corpus bc5cdr` has made, and for the same linker without its encoder: exact names, training
strings and character 3-grams (the lexical floor).
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import spacy
import srsly
import typer

from benchmarks.linking import subsets
from benchmarks.record import Row, SeedOption, question
from benchmarks.texts import CANDIDATES, KEY, dev, dev_file, only, python, scored
from spacy_bioel.linking.given import link_gold_mentions
from spacy_bioel.plugins.evaluation.run import link_bare_texts

_F1 = ("precision", "recall", "f1")
_TEXT_ONLY = {
    "mention": _F1,
    "end_to_end": _F1,
    "partial_binary": _F1,
    "partial_fractional": ("f1",),
}
_GIVEN_METRICS = (
    "accuracy@1", "accuracy@1_nil_ignored", "accuracy@1_nil_ignored_normalised", "mrr",
    "mrr_normalised", "recall@10",
)  # fmt: skip
# Protocols -> their names in the literature, which the result file uses.
_PROTOCOL_NAMES = {"end_to_end": "strict", "partial_binary": "partial"}


@question("end_to_end", key=KEY)
def end_to_end(
    corpus: str,
    system: str,
    model: Annotated[Path | None, typer.Option(help="Default: models/CORPUS/final.")] = None,
    seed: SeedOption = 0,
) -> Iterator[Row]:
    model = model or Path("models") / corpus / "final"
    about = {"corpus": corpus, "split": "dev", "seed": seed}
    yield from ({"system": system, **about, **row} for row in _measure(model, corpus))
    linker: Any = spacy.load(model).get_pipe("bioel_linker")
    variants = {"strings": {"contextual": False}} if linker.is_contextual else {}
    if linker.is_contextual and linker.model.name == "dual_encoder":
        variants["context"] = dict.fromkeys(linker.cfg["evidence"], False) | {"contextual": True}
    for name, evidence in variants.items():
        with _retuned(model, corpus, evidence) as tuned:
            for row in _measure(tuned, corpus):
                yield {"system": f"{system}_{name}", **about, **row}


@contextmanager
def _retuned(model: Path, corpus: str, evidence: Mapping[str, bool]) -> Iterator[Path]:
    """Yield the pipeline with some evidence switched on or off, and tuned again on dev."""
    with tempfile.TemporaryDirectory() as folder:
        changed, tuned = Path(folder) / "changed", Path(folder) / "tuned"
        nlp = spacy.load(model)
        linker: Any = nlp.get_pipe("bioel_linker")
        linker.cfg["evidence"] |= evidence
        nlp.to_disk(changed)
        kb = Path("kb") / corpus
        python("-m", "spacy_bioel", "tune", changed, dev_file(corpus), tuned, "--kb", kb)
        yield tuned


def _measure(model: Path, corpus: str) -> Iterator[Row]:
    """Yield the figures of one pipeline on dev; for given mentions also by subset."""
    nlp: Any = spacy.load(model)
    linker = nlp.get_pipe("bioel_linker")
    texts, about = dev(corpus), {"kb": linker.kb.fingerprint}
    if "bioel_mentions" in nlp.pipe_names:
        links = list(link_bare_texts(nlp, linker, texts))
        for row in scored(texts, links, linker.kb, _TEXT_ONLY, **about):
            yield row | {"protocol": _PROTOCOL_NAMES.get(row["protocol"], row["protocol"])}
    linker.cfg["max_candidates"] = CANDIDATES  # for recall@10
    links = list(link_gold_mentions(nlp, linker, texts))
    given = {"gold": _GIVEN_METRICS, "gold_any": _GIVEN_METRICS}
    for subset, belongs in subsets(corpus, linker.kb).items():
        for row in scored(only(texts, belongs), links, linker.kb, given, **about):
            yield row | {"subset": subset}


@question("main_job")
def main_job(seed: SeedOption = 0) -> Iterator[Row]:
    corpus = "bc5cdr"
    given = ("accuracy@1", "accuracy@1_nil_ignored")
    wanted = {"mention": ("f1",), "end_to_end": ("f1",), "gold": given, "gold_any": given}
    results = {"rescnn": srsly.read_json(Path("metrics") / corpus / "dev.json")}
    with _retuned(Path("models") / corpus / "final", corpus, {"dense": False}) as tuned:
        out = tuned.with_name("dev.json")
        protocols = [part for name in wanted for part in ("--protocol", name)]
        python("-m", "spacy_bioel", "evaluate", tuned, dev_file(corpus), *protocols, "--json", out)
        results["lexical"] = srsly.read_json(out)
    about = {"question": "accuracy", "corpus": corpus, "split": "dev", "seed": seed}
    for system, rows in results.items():
        for row in rows:
            if row["metric"] in wanted.get(row["protocol"], ()) and not row["label"]:
                numbers = {name: round(row[name], 2) for name in ("value", "low", "high")}
                kept = {name: row[name] for name in ("protocol", "metric", "n")}
                yield {"system": system, **about, **kept, **numbers, "kb": row["kb_fingerprint"]}
