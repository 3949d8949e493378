"""Errors of a pipeline on gold documents: gold mentions and predictions in pairs, by kinds."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from spacy_bioel.scoring.counts import Ids, kind_of, one_to_one, pair_by_offsets
from spacy_bioel.scoring.evaluation import canonicalised
from spacy_bioel.types import AnnotatedText, Link, Mention

Pair = tuple[Mention | None, Link | None]


@dataclass(frozen=True)
class Knowledge:
    """Answers of a knowledge base, and of mention statistics, to questions about gold mentions.

    canonical (Callable): The current id of an id.
    knows (Callable): Whether the knowledge base has a current id.
    has_name (Callable): Whether a concept, by its id, has a name, however it is spelled.
    is_seen (Callable | None): Whether a string or one of these ids was in the training documents;
        None: nothing is known of these.
    """

    canonical: Callable[[str], str]
    knows: Callable[[str], bool]
    has_name: Callable[[str, str], bool]
    is_seen: Callable[[str, Ids], bool] | None = None


@dataclass(frozen=True, slots=True)
class LinkingError:
    """An error, with canonical ids on both sides.

    text (AnnotatedText): The gold document.
    gold (Mention | None), link (Link | None): Both for a pair.
    kind (str): A key of `counts.KINDS`.
    marks (tuple[str, ...]): Keys of `counts.MARKS`, in their order.
    """

    text: AnnotatedText
    gold: Mention | None
    link: Link | None
    kind: str
    marks: tuple[str, ...] = ()

    @property
    def place(self) -> Mention | Link:
        """The gold mention; of a spurious prediction, the prediction."""
        found = self.gold or self.link
        assert found is not None
        return found

    @property
    def string(self) -> str:
        return self.text.text[self.place.start : self.place.end]

    @property
    def rank(self) -> int:
        """Rank, from 1, of the first candidate that is a gold id; 0: there is none."""
        if self.gold is None or self.link is None:
            return 0
        ranks = (i for i, c in enumerate(self.link.candidates, start=1) if c.id in self.gold.ids)
        return next(ranks, 0)


def find_errors(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    knowledge: Knowledge | None = None,
    labels: bool = True,
    given: bool = False,
) -> Iterator[LinkingError]:
    """Find the errors of all documents, in the order of the documents and of their offsets.

    gold (Sequence[AnnotatedText]): Where a document says what it annotates, links with another
        label are left out.
    knowledge (Knowledge | None): None: ids are not compared, for nothing was linked.
    labels (bool): Whether labels are compared.
    given (bool): The linker was given the gold mentions: what it widened to whole tokens stands for
        them.
    RAISES BioelError: [B080] when the numbers of documents differ.
    """
    golds, links = canonicalised(gold, predicted, knowledge.canonical if knowledge else str)
    for text, mentions, doc_links in zip(gold, golds, links, strict=True):
        if knowledge is None:
            mentions = [replace(mention, ids=()) for mention in mentions]
        found = _given_pairs(mentions, doc_links) if given else pairs(mentions, doc_links)
        # Mentions that lost an id of the corpus, because it was replaced.
        before_and_after = zip(text.mentions, mentions, strict=True)
        retired = {m for original, m in before_and_after if not set(original.ids) <= set(m.ids)}
        errors = (
            LinkingError(text, mention, link, kind)
            for mention, link in found
            if (kind := kind_of(mention, link, labels=labels))
        )
        for error in sorted(errors, key=lambda e: (e.place.start, e.place.end, e.gold is None)):
            marks = _marks(error, knowledge, retired) if knowledge else ()
            yield replace(error, marks=tuple(marks))


def _given_pairs(gold: Sequence[Mention], links: Sequence[Link]) -> list[Pair]:
    return [
        (m, link and replace(link, start=m.start, end=m.end, label=m.label))
        for m, link in pair_by_offsets(gold, links)
    ]


def pairs(gold: Iterable[Mention], links: Iterable[Link]) -> list[Pair]:
    """Pair gold mentions with predictions as `counts.PAIRING` says; what is left has None."""
    mentions, rest = _different(gold), _different(links)
    paired = one_to_one(_ranked(mentions, rest))
    found: list[Pair] = [(mentions[i], rest[j]) for i, j in paired.items()]
    found += [(m, None) for i, m in enumerate(mentions) if i not in paired]
    taken = set(paired.values())
    return found + [(None, x) for j, x in enumerate(rest) if j not in taken]


def confusions(errors: Iterable[LinkingError]) -> Counter[tuple[Ids, Ids]]:
    """Count the pairs of gold ids and other predicted ids, on the same offsets."""
    return Counter(
        (error.gold.ids, error.link.ids)
        for error in errors
        if error.kind == "wrong_id" and error.gold and error.link
    )


def strings_of(errors: Iterable[LinkingError], kind: str) -> Counter[tuple[str, str]]:
    """Count the strings of the errors of a kind, in lower case, each with its label."""
    return Counter((e.string.lower(), e.place.label) for e in errors if e.kind == kind)


def _ranked(
    gold: Sequence[Mention], links: Sequence[Link]
) -> Iterator[tuple[tuple[int, bool, bool], int, int]]:
    order = sorted(range(len(links)), key=lambda j: links[j].start)
    starts = [links[j].start for j in order]
    longest = max((link.end - link.start for link in links), default=0)
    for i, m in enumerate(gold):
        # None that begins farther to the left reaches the mention.
        near = slice(bisect_left(starts, m.start - longest), bisect_left(starts, m.end))
        for j in order[near]:
            link = links[j]
            shared = min(m.end, link.end) - max(m.start, link.start)
            if (m.start, m.end) == (link.start, link.end):
                shared = sys.maxsize
            if shared > 0:
                yield (-shared, m.ids != link.ids, m.label != link.label), i, j


def _different(items: Iterable) -> list:
    """Return the items without exact duplicates."""
    return list({(x.start, x.end, x.label, x.ids): x for x in items}.values())


def _marks(error: LinkingError, knowledge: Knowledge, retired: set[Mention]) -> Iterator[str]:
    gold, link = error.gold, error.link
    if gold is None or not gold.ids:
        return
    if link is not None:
        wrong = set(link.ids) - set(gold.ids)
        names = [c.name for c in link.candidates if c.id in wrong]
        others = [id for id in gold.ids if id not in link.ids]
        if any(knowledge.has_name(id, name) for name in names for id in others):
            yield "homonym"
    if not all(map(knowledge.knows, gold.ids)):
        yield "missing"
    if gold in retired:
        yield "retired"
    if knowledge.is_seen is not None and not knowledge.is_seen(error.string, gold.ids):
        yield "unseen"
