"""Gain of the words around a mention for the choice among its candidates.

python -m benchmarks.context CORPUS measures on the dev documents, with training strings, as
`benchmarks.linking` does; then again with the log-odds of each candidate raised by a weight times
a cosine. Compared are the words of the mention's sentence, weighted by how rare they are in dev
sentences, with those of the sentences that the concept was mentioned in while training, or with the
names of the concept and of its parents. The best weight is that of the same documents: a bound on
what could be had, not an estimate. The package does nothing of this.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path

import typer
from spacy.vocab import Vocab

from benchmarks import linking
from benchmarks.record import add, measurement
from spacy_bioel.corpus import doc_to_text, read_docs
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText, Candidate, Link, Mention

WEIGHTS = (0.0, 2.0, 5.0, 10.0)
PROFILES = ("sentences", "names")
_SENTENCE_END = re.compile(r"[.;!?]\s")
_STOP = frozenset("the and with for from was were are that this not".split())


def main(corpus: str, encoder: str = "spacy_bioel/assets/encoder", seed: int = 0) -> None:
    system = linking.SYSTEMS["rescnn"]
    nlp, linker = linking.make_pipeline(corpus, system, encoder=encoder, uses_training=True)
    texts = linking.known_texts(corpus, linker.kb)
    prior = linking.PRIORS.get(corpus)
    fitted = linking.fit_prior(prior, system, encoder=encoder) if prior else None
    links = linking.cross_fitted(nlp, linker, texts, seed=seed, prior=fitted)
    context = Context(linker.kb, texts, training_texts(corpus))
    is_ambiguous = linking.subsets(corpus, linker.kb)["ambiguous name"]
    ambiguous = [
        replace(
            t, mentions=tuple(m for m in t.mentions if is_ambiguous(t.text[m.start : m.end], m))
        )
        for t in texts
    ]
    rows = []
    for profile in PROFILES:
        for weight in WEIGHTS:
            moved = [
                [context.moved(text, link, profile=profile, weight=weight) for link in of_text]
                for text, of_text in zip(texts, links, strict=True)
            ]
            for subset, part in (("", texts), ("ambiguous name", ambiguous)):
                about = {"corpus": corpus, "split": "dev", "seed": seed, "subset": subset}
                found = linking.metric_rows(part, moved, linker.kb)
                rows += [
                    measurement("context", f"{profile}, {weight:g}", **about, **row)
                    for row in found
                    if row["metric"] == "accuracy@1"
                ]
                typer.echo(f"{corpus} {profile} {weight:g} {subset} {rows[-1]['value']}")
    typer.echo(add("context", rows, key=("corpus", "system", "subset", "seed")))


def training_texts(corpus: str) -> Iterable[AnnotatedText]:
    return map(doc_to_text, read_docs(Path("corpus") / corpus / "train.spacy", Vocab()))


class Context:
    """Words around mentions, and words that are usual around concepts."""

    def __init__(
        self, kb: KnowledgeBase, texts: Iterable[AnnotatedText], training: Iterable[AnnotatedText]
    ) -> None:
        self.kb = kb
        self._sentences: dict[str, Counter[str]] = defaultdict(Counter)
        self._names: dict[str, Counter[str]] = {}
        for text in training:
            for mention in text.mentions:
                for id_ in mention.ids:
                    self._sentences[kb.canonical(id_)].update(words_around(text, mention))
        self._counts: Counter[str] = Counter()
        self._n = 1
        for text in texts:
            for mention in text.mentions:
                self._counts.update(words_around(text, mention))
                self._n += 1

    def moved(self, text: AnnotatedText, link: Link, *, profile: str, weight: float) -> Link:
        """A link whose candidates are ranked with the words around its mention."""
        words = words_around(text, link)
        scores = [
            c.score * exp(weight * self._cosine(words, self._profile(c.id, profile)))
            for c in link.candidates
        ]
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        ranked: tuple[Candidate, ...] = tuple(link.candidates[i] for i in order)
        return replace(link, ids=(), candidates=ranked)

    def _profile(self, id_: str, profile: str) -> Counter[str]:
        if profile == "sentences":
            return self._sentences.get(id_, Counter())
        if id_ not in self._names:
            row = self.kb.find(id_)
            concepts = [row, *self.kb.parents_of(row).tolist()]
            names = [self.kb.name(int(n)) for c in concepts for n in self.kb.names_of(c)]
            self._names[id_] = Counter(w for name in names for w in _words(name))
        return self._names[id_]

    def _cosine(self, words: set[str], profile: Counter[str]) -> float:
        rare = {word: log((self._n + 1) / (self._counts[word] + 1)) for word in {*words, *profile}}
        shared = sum(rare[w] ** 2 * log(1 + profile[w]) for w in words if w in profile)
        norm = sqrt(sum(rare[w] ** 2 for w in words))
        norm *= sqrt(sum((rare[w] * log(1 + count)) ** 2 for w, count in profile.items()))
        return shared / norm if shared else 0.0


def words_around(text: AnnotatedText, mention: Mention | Link) -> set[str]:
    """Different words of the sentence, without those of the mention."""
    before, after = text.text[: mention.start], text.text[mention.end :]
    start = max((m.end() for m in _SENTENCE_END.finditer(before)), default=0)
    end = _SENTENCE_END.search(after)
    return _words(f"{before[start:]} {after[: end.start() if end else len(after)]}")


def _words(string: str) -> set[str]:
    return {w for w in normalize_name(string).split() if len(w) > 2 and w not in _STOP}


if __name__ == "__main__":
    typer.run(main)
