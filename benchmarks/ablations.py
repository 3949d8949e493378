"""Measure what each rule, list and table of names earns: `python -m benchmarks.run ablations`.

Each rule of `benchmarks/rules.py` is turned off alone, and the starter links the documents of the
corpora in the folder --data again (at most 250 of each), and the lists of `python -m benchmarks.run
names`; dictionaries of HPO and own_names.csv do so for the rules of dictionaries. The probabilities
of the detector's network do not depend on rules, so they are computed once.

`value` is the most that a corpus or list that the rule was not written from loses without it: F1
end to end (of `cg`: of mentions), or percent of a list that is right. `verdict`: a rule stays if
that is 0.1 F1 or 1 % of a list; else it goes, unless it is evidence for a model, or unless nobody
has data that its authors did not read. `won` and `lost` are right links that it adds and takes.

The starter's detector was trained on all of these corpora except `cg`, so a rule that finds what a
detector misses earns more on new texts. Weights are not fitted again without a feature.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import chain, islice
from pathlib import Path
from pkgutil import resolve_name
from tempfile import mkdtemp
from time import process_time
from typing import Annotated, Any

import numpy as np
import typer
from spacy.tokens import Doc

import spacy_bioel
from benchmarks import names, tmvar3
from benchmarks.record import Row, load, question
from benchmarks.rules import RULES, Rule
from benchmarks.starter import script
from spacy_bioel.corpus import read_texts
from spacy_bioel.found import FoundSpans
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.open import skipping_bad
from spacy_bioel.kb.build import build_kb
from spacy_bioel.linking import candidates
from spacy_bioel.loading import load_model
from spacy_bioel.mentions.find import find, steps_of_detector
from spacy_bioel.plugins.evaluation.evaluate import (
    bootstrap_sums,
    canonicalise,
    count_documents,
    percent,
)
from spacy_bioel.scoring.protocols import Counts, Metric, get_protocol, offsets_and_ids
from spacy_bioel.types import AnnotatedText, Link, Mention

N_DOCUMENTS, BATCH = 250, 32
MIN_F1, MIN_SHARE = 0.1, 1.0  # points that a rule has to earn
_F1 = get_protocol("mention")[1].metrics["f1"]
_SHARE = Metric("share that is right", (("right", "n"),), "n")
_FILES = {
    "bc5cdr": "bc5cdr/CDR_DevelopmentSet.PubTator.txt",
    "ncbi_disease": "ncbi_disease/NCBIdevelopset_corpus.txt",
    "nlm_gene": "types/nlm_gene.PubTator.txt.gz",
    "gnormplus": "types/gnormplus.PubTator.txt.gz",
    "biored": "types/biored.PubTator.txt.gz",
    "s800": "types/s800.PubTator.txt.gz",
    "tmvar3_genes": "types/tmvar3.PubTator.txt.gz",
    "tmvar3": "types/tmvar3.PubTator.txt.gz",
}  # fmt: skip
_LABELS_OF_CG = {"chem": "Chemical", "ggp": "Gene", "species": "Species"}
Gold = Any  # an annotated text, or a record of a list


class Pipeline:
    """A pipeline and documents that it links again and again, each time without another rule."""

    def __init__(self, nlp: Any) -> None:
        self.nlp, self.linker = nlp, nlp.get_pipe("bioel_linker")
        self.detector = nlp.get_pipe("bioel_mentions") if nlp.has_pipe("bioel_mentions") else None
        self.docs: dict[str, Doc] = {}
        self._scored: dict[str, Any] = {}
        self._ranked: list[Any] = []

    def add(self, text: str) -> None:
        if text not in self.docs:
            self.docs[text] = self.nlp.make_doc(text)

    def link(
        self, texts: Sequence[str], *, fresh: bool = False, ranks: bool = False
    ) -> dict[str, list[Link]]:
        """Link documents, and write the links to them.

        fresh (bool): Read what rules know about a knowledge base again.
        ranks (bool): Rank the candidates of strings again.
        """
        if fresh or ranks or self.detector is None:
            for name in ("generator", "dictionary", "unambiguous names"):
                self.linker._cache.forget(name)
        generators = [self.linker.generator, *self.linker.generator.parts]
        if not ranks:
            self._ranked = self._ranked or [generator._ranked for generator in generators]
            for generator, ranked in zip(generators, self._ranked, strict=True):
                generator._ranked = ranked
        self.linker.generator.unambiguous_names._verdicts.clear()
        links: dict[str, list[Link]] = {}
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            docs = [self.docs[text] for text in part]
            if self.detector:
                if new := [text for text in part if text not in self._scored]:
                    scores = self.detector.score_spans([self.docs[text] for text in new])
                    self._scored.update(zip(new, scores, strict=True))
                scored = [self._scored[text] for text in part]
                steps = steps_of_detector(self.detector.cfg, self.detector.rules)
                found = find(list(map(FoundSpans, docs, scored)), steps)
                self.detector.set_annotations(docs, [of_doc.spans for of_doc in found])
            of_docs = self.linker.predict(docs)
            self.linker.set_annotations(docs, of_docs)
            links.update(zip(part, of_docs, strict=True))
        return links


@dataclass(eq=False)
class Data:
    """A corpus or list with its counts, before a rule is off.

    count (Callable): Returns the counts by label of a gold document, given its Doc and links.
    """

    name: str
    pipeline: Pipeline
    gold: Mapping[str, Gold]  # by text
    metric: Metric
    count: Callable[[Gold, Doc, list[Link]], dict[str, Counts]]
    has_ids: bool = False
    counts: dict[str, dict[str, Counts]] = field(default_factory=dict)

    def counted(self, links: Mapping[str, list[Link]]) -> dict[str, dict[str, Counts]]:
        return {
            text: self.count(gold, self.pipeline.docs[text], links[text])
            for text, gold in self.gold.items()
            if text in links
        }

    def links(
        self, before: Mapping[str, list[Link]], changed: Mapping[str, list[Link]]
    ) -> Counter[str]:
        """Count the right and wrong links that there are only with the rule, or only without it."""
        found = Counter[str]()
        for text, new in changed.items() if self.has_ids else ():
            if gold := self.gold.get(text):
                canonical = self.pipeline.linker.kb.canonical
                (mentions, _), of_both = canonicalise([gold, gold], [before[text], new], canonical)
                golds = set(chain.from_iterable(map(offsets_and_ids, mentions)))
                old, new_rows = (set(chain.from_iterable(map(offsets_and_ids, x))) for x in of_both)
                found["won"] += len(golds & old - new_rows)
                found["lost"] += len(golds & new_rows - old)
                found["wrong"] += len(old - new_rows - golds)
                found["avoided"] += len(new_rows - old - golds)
        return found

    def earned(self, changed: Mapping[str, list[Link]]) -> Iterator[tuple[str, Row]]:
        """Yield what is lost on it without a rule, by label.

        changed (Mapping): The new links of the texts that have other links without the rule.
        """
        after = self.counts | self.counted(changed)
        for label in sorted(
            {label for row in chain(self.counts.values(), after.values()) for label in row}
        ):
            sides = [
                [rows[text].get(label, {}) for text in self.gold] for rows in (self.counts, after)
            ]
            if sides[0] != sides[1]:
                name = " ".join(filter(None, (self.name, label)))
                yield name, _difference(self.metric, *sides)


def _difference(metric: Metric, *sides: Sequence[Counts]) -> Row:
    """Return the difference of a metric with its interval, by a paired bootstrap over documents."""
    counts = list(dict.fromkeys(chain.from_iterable(metric.ratios)))
    rows = zip(*sides, strict=True)
    table = np.array(
        [[side.get(name, 0.0) for side in row for name in counts] for row in rows], float
    )

    def difference(sums: Any) -> Any:
        halves = np.split(sums.T, 2)
        with_rule, without = (percent(metric, dict(zip(counts, h, strict=True))) for h in halves)
        return with_rule - without

    interval = np.percentile(difference(bootstrap_sums(table, seed=0)), [2.5, 97.5])
    total = difference(table.sum(axis=0, keepdims=True))[0]
    values = dict(zip(("points", "low", "high"), map(float, (total, *interval)), strict=True))
    return {name: round(value, 2) for name, value in values.items()}


def _count_links(
    protocol: str, canonical: Callable[[str], str], gold: AnnotatedText, doc: Doc, links: list[Link]
) -> dict[str, Counts]:
    counts = {}
    for label in {*gold.annotates} if len(gold.annotates) > 1 else ():
        mentions = tuple(m for m in gold.mentions if m.label == label)
        one = replace(gold, mentions=mentions, annotates=(label,))
        counts[label] = count_documents([one], [links], protocol=protocol, canonical=canonical)[0]
    counts[""] = count_documents([gold], [links], protocol=protocol, canonical=canonical)[0]
    return counts


def _count_facts(gold: tmvar3.Document, doc: Doc, links: list[Link]) -> dict[str, Counts]:
    counts: dict[str, Counts] = {}
    for protocol, metric, is_right in tmvar3.judged(gold, links):
        of_fact = counts.setdefault(f"{metric}, {protocol}", {"right": 0, "n": 0})
        of_fact["right"] += is_right
        of_fact["n"] += 1
    return counts


def _count_outcomes(gold: names.Text, doc: Doc, links: list[Link]) -> dict[str, Counts]:
    found = [outcome for _, outcome, _ in names.outcomes(*gold, list(doc.spans["bioel"]))]
    return {"": {"right": found.count("right"), "n": len(found)}}


def _data(folder: Path) -> Iterator[Data]:
    """Read the corpora and lists. Documents with the same text count once."""
    starter = Pipeline(spacy_bioel.load())
    canonical = starter.linker.kb.canonical
    e2e = partial(_count_links, "end_to_end", canonical)
    mentions = partial(_count_links, "mention", canonical)
    for name, file in _FILES.items():
        texts = {
            text.text: text
            for text in islice(_corpus(name, folder / "corpora" / file), N_DOCUMENTS)
        }
        yield Data(name, starter, texts, _F1, *((mentions,) if name == "tmvar3" else (e2e, True)))
    yield Data("cg", starter, _sentences(folder / "corpora/ner"), _F1, mentions)
    variants = {d.text: d for d in tmvar3.documents(folder / "corpora" / _FILES["tmvar3"])}
    unread = {text: d for text, d in variants.items() if tmvar3.is_unread(d)}
    for name, facts in (("facts", variants), ("facts, unread", unread)):
        yield Data(f"tmvar3 {name}", starter, facts, _SHARE, _count_facts)
    records = list(names.records(folder / "names/gene/symbols_dev.tsv"))
    for kind in dict.fromkeys(subset.partition(",")[0] for subset, _ in records):
        listed = {r["text"]: (s, r) for s, r in records if s.partition(",")[0] == kind}
        yield Data(f"list: {kind}", starter, listed, _SHARE, _count_outcomes)
    own = {record["text"]: (subset, record) for subset, record in names.own_records()}
    yield Data("list: own names", Pipeline(names.own_pipeline()), own, _SHARE, _count_outcomes)
    hpo = Path(mkdtemp()) / "hp"
    build_kb(read_ontology(folder / "names/obo/hp.obo.gz"), hpo)
    nlp, gold = load_model(str(hpo)), dict[str, AnnotatedText]()
    with (folder / "phenotypes/hpo_dev.jsonl").open(encoding="utf8") as phenotypes:
        for record in map(json.loads, phenotypes):
            found = tuple(Mention(m["start"], m["end"], "", (m["id"],)) for m in record["mentions"])
            gold[record["text"]] = AnnotatedText(record["id"], record["text"], found)
    yield Data("hpo", Pipeline(nlp), gold, _F1, partial(_count_links, "end_to_end", str), True)


def _corpus(name: str, path: Path) -> Iterator[AnnotatedText]:
    spec = script("specs").load_spec(name)
    labels, prefixes = spec.get("labels", {}), spec.get("prefixes", {})
    with_ids = tuple(label for label in spec["annotates"] if prefixes.get(label, "") is not None)
    annotated = with_ids or tuple(spec["annotates"])
    with skipping_bad(lambda bad: None):
        for text in read_texts(path, prefix=spec["prefix"]):
            text = script("documents").relabelled(text, labels=labels, prefixes=prefixes)
            kept = tuple(m for m in text.mentions if m.label in annotated)
            yield replace(text, mentions=kept, annotates=annotated)


def _sentences(folder: Path) -> dict[str, AnnotatedText]:
    """Return sentences of BioNLP CG, whose mentions have no ids. Each file has those of a label."""
    texts: dict[str, AnnotatedText] = {}
    for name, label in _LABELS_OF_CG.items():
        with gzip.open(folder / f"cg_{name}.jsonl.gz", "rt", encoding="utf8") as file:
            for record in map(json.loads, islice(file, 2 * N_DOCUMENTS)):
                tokens, text = record["tokens"], " ".join(record["tokens"])
                ends = np.cumsum([len(token) + 1 for token in tokens]).tolist()
                found = [
                    Mention(ends[a] - len(tokens[a]) - 1, ends[b - 1] - 1, label)
                    for a, b in record["spans"]
                ]
                known = texts.get(text, AnnotatedText(str(len(texts)), text, annotates=()))
                texts[text] = replace(
                    known, mentions=(*known.mentions, *found), annotates=(*known.annotates, label)
                )
    return texts


@contextmanager
def off(rule: Rule) -> Iterator[None]:
    """Replace what stands for a rule, and forget results."""
    with _replaced(rule.off):
        yield


@contextmanager
def _replaced(values: Mapping[str, Any]) -> Iterator[None]:
    """Replace functions and tables by path, in all modules that have imported the functions."""
    undo: list[tuple[Any, str, Any]] = []
    for path, value in values.items():
        owner, old = _found(path)
        modules = [m for name, m in sys.modules.items() if name.startswith("spacy_bioel")]
        for holder in modules if callable(old) and not isinstance(owner, type) else [owner]:
            for attribute in [name for name, item in vars(holder).items() if item is old]:
                undo.append((holder, attribute, old))
                setattr(holder, attribute, value)
    _forget()
    try:
        yield
    finally:
        for holder, attribute, old in undo:
            setattr(holder, attribute, old)
        _forget()


def _found(path: str) -> tuple[Any, Any]:
    """Return what a path names, and the module or class that has it."""
    place, _, name = f"spacy_bioel.{path}".rpartition(".")
    owner = resolve_name(place)
    return owner, vars(owner)[name]


class _Touched:
    """The texts in which a rule does something, found by linking each alone once.

    It does if a call of its function returns something else than the call of what replaces it, or
    if its expression matches. Rules of numbers and tables may do something in every text.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._texts: dict[str, set[str]] = {}
        self._text = ""
        rules_of: dict[str, list[tuple[str, Any]]] = {}
        everywhere = set[str]()
        for rule in RULES:
            for path, value in rule.off.items():
                is_known = callable(value) or isinstance(value, re.Pattern)
                if rule.probe or rule.fresh or rule.ranks or not is_known:
                    everywhere.add(rule.name)
                else:
                    rules_of.setdefault(path, []).append((rule.name, value))
        self._texts = {rule.name: set() for rule in RULES if rule.name not in everywhere}
        if pipeline.detector is None:
            others = {rule.name for rule in RULES if not any("dictionary." in p for p in rule.off)}
            self._texts = {name: set() for name in others}
            return
        watching = {path: self._watching(_found(path)[1], rules_of[path]) for path in rules_of}
        with _replaced(watching):
            for self._text in pipeline.docs:
                _forget()
                pipeline.link([self._text])

    def texts(self, rule: Rule, texts: Iterable[str]) -> list[str]:
        found = self._texts.get(rule.name)
        return [text for text in texts if found is None or text in found]

    def _watching(self, old: Any, rules: Sequence[tuple[str, Any]]) -> Any:
        if isinstance(old, re.Pattern):
            return _WatchedPattern(old, lambda: self._note(*(name for name, _ in rules)))

        @wraps(old)
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = old(*args, **kwargs)
            for name, other in rules:
                if self._text not in self._texts.get(name, ()):
                    if result is None or other(*args, **kwargs) != result:
                        self._note(name)
            return result

        if hasattr(old, "cache_clear"):
            watched.cache_clear = old.cache_clear  # type: ignore[attr-defined]
        return watched

    def _note(self, *names_of_rules: str) -> None:
        for name in names_of_rules:
            self._texts.get(name, set()).add(self._text)


class _WatchedPattern:
    """A regular expression that tells when it matches."""

    def __init__(self, pattern: re.Pattern[str], note: Callable[[], None]) -> None:
        self._pattern, self._note = pattern, note

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._pattern, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if name == "finditer":
                result = list(result)
            if result if name != "sub" else result != args[1]:
                self._note()
            return iter(result) if name == "finditer" else result

        return call if callable(method) else method


def _forget() -> None:
    """Clear the caches of rules, but not those of files."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("spacy_bioel.entities", "spacy_bioel.dictionary")):
            for function in vars(module).values():
                parameters = getattr(function, "cache_parameters", None)
                if parameters and parameters()["maxsize"] is not None:
                    function.cache_clear()


def _shown(links: Iterable[Link]) -> list[Any]:
    return [(link.start, link.end, link.label, link.ids, link.facts) for link in links]


@question("ablations", key=("system",))
def ablations(
    data: Annotated[Path, typer.Option(help="The folder with the corpora.")],
    rule: Annotated[
        list[str] | None, typer.Option(help="Only these; default: all new ones.")
    ] = None,
) -> Iterator[Row]:
    candidates.CACHED_STRINGS = sys.maxsize
    all_data, pipelines = list(_data(data)), dict[Pipeline, list[str]]()
    for one in all_data:
        for text in one.gold:
            one.pipeline.add(text)
        pipelines[one.pipeline] = list(one.pipeline.docs)
    before = dict[Pipeline, dict[str, list[Link]]]()
    for pipeline, texts in pipelines.items():
        before[pipeline] = pipeline.link(texts)
        for one in all_data:
            if one.pipeline is pipeline:
                one.counts = one.counted(before[pipeline])
    touched = {pipeline: _Touched(pipeline) for pipeline in pipelines}
    done = {row["system"] for row in load("ablations")}
    for each in RULES:
        if each.name in rule if rule else each.name not in done:
            yield _measured(each, all_data, before, touched)


def _timed(
    pipeline: Pipeline, texts: Sequence[str], **again: bool
) -> tuple[float, dict[str, list[Link]]]:
    start = process_time()
    links = pipeline.link(texts, **again)
    return process_time() - start, links


def _measured(
    rule: Rule,
    all_data: Sequence[Data],
    before: Mapping[Pipeline, dict[str, list[Link]]],
    touched: Mapping[Pipeline, _Touched],
) -> Row:
    earned: dict[str, Row] = {}
    links, best, n_texts, seconds = Counter[str](), Counter[str](), 0, 0.0
    probed = {p: {t: rule.probe(t) for t in p.docs} if rule.probe else {} for p in before}
    with off(rule):
        for pipeline, links_before in before.items():
            texts = touched[pipeline].texts(rule, links_before)
            if rule.probe is not None:
                texts = [text for text in texts if rule.probe(text) != probed[pipeline][text]]
            n_texts += len(texts)
            used, after = _timed(pipeline, texts, fresh=rule.fresh, ranks=rule.ranks)
            seconds -= used
            changed = {t: new for t, new in after.items() if _shown(new) != _shown(links_before[t])}
            for data in all_data:
                if data.pipeline is pipeline:
                    facts = links_before if rule.probe and "facts" in data.name else {}
                    points = dict(data.earned({**facts, **changed}))
                    earned |= points
                    least = MIN_SHARE if data.metric is _SHARE else MIN_F1
                    if data.name in rule.unseen:
                        best.update({name: row["points"] / least for name, row in points.items()})
                    links += data.links(links_before, changed)
    for pipeline, links_before in before.items():
        texts = touched[pipeline].texts(rule, () if rule.probe or rule.ranks else links_before)
        seconds += _timed(pipeline, texts, fresh=rule.fresh or rule.ranks)[0]
    value = max(best.values(), default=0.0)
    verdict = "stays" if value >= 1 else "evidence" if rule.evidence else "goes"
    return {
        "system": rule.name,
        "metric": "earned, by what a rule has to earn",
        "value": round(value, 2),
        "verdict": verdict if rule.unseen and n_texts else "no unseen data",
        "lines": rule.lines,
        "texts": n_texts,
        "seconds": round(max(seconds, 0.0), 2),
        **links,
        "earned": earned,
    }
