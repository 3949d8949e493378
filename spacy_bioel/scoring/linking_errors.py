"""Errors of a pipeline on gold documents: gold mentions and predictions in pairs, by kinds."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from spacy_bioel.scoring.counts import Ids, kind_of
from spacy_bioel.scoring.evaluation import canonicalised
from spacy_bioel.scoring.given import pair_by_offsets
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
    kind (str): A key of `kinds.KINDS`.
    marks (tuple[str, ...]): Keys of `kinds.MARKS`, in their order.
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
        found = given_pairs(mentions, doc_links) if given else pairs(mentions, doc_links)
        retired = _retired(text.mentions, mentions)
        for mention, link in sorted(found, key=_place):
            if kind := kind_of(mention, link, labels=labels):
                error = LinkingError(text, mention, link, kind)
                marks = _marks(error, knowledge, retired) if knowledge else ()
                yield replace(error, marks=tuple(marks))


def given_pairs(gold: Sequence[Mention], links: Sequence[Link]) -> list[Pair]:
    """Pairs of gold mentions that were given, each with the link at its place, if there is one."""
    return [
        (m, link and replace(link, start=m.start, end=m.end, label=m.label))
        for m, link in pair_by_offsets(gold, links)
    ]


def pairs(gold: Iterable[Mention], links: Iterable[Link]) -> list[Pair]:
    """Pair gold mentions with predictions as `kinds.PAIRING` says.

    RETURNS (list[Pair]): All pairs, and what is left of both sides with None.
    """
    mentions, rest = _different(gold), _different(links)
    found: list[Pair] = []
    for candidates in (_at_equal_offsets, _that_overlap):
        paired_mentions: set[int] = set()
        paired_links: set[int] = set()
        for _, i, j in sorted(candidates(mentions, rest)):
            if i not in paired_mentions and j not in paired_links:
                paired_mentions.add(i)
                paired_links.add(j)
                found.append((mentions[i], rest[j]))
        mentions = [m for i, m in enumerate(mentions) if i not in paired_mentions]
        rest = [x for j, x in enumerate(rest) if j not in paired_links]
    return [*found, *((m, None) for m in mentions), *((None, x) for x in rest)]


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


Ranked = Iterator[tuple[tuple[int, ...], int, int]]  # the pairs with the lowest numbers come first


def _at_equal_offsets(gold: Sequence[Mention], links: Sequence[Link]) -> Ranked:
    at: dict[tuple[int, int], list[int]] = {}
    for j, link in enumerate(links):
        at.setdefault((link.start, link.end), []).append(j)
    for i, m in enumerate(gold):
        for j in at.get((m.start, m.end), ()):
            yield (m.ids != links[j].ids, m.label != links[j].label), i, j


def _that_overlap(gold: Sequence[Mention], links: Sequence[Link]) -> Ranked:
    order = sorted(range(len(links)), key=lambda j: links[j].start)
    starts = [links[j].start for j in order]
    longest = max((link.end - link.start for link in links), default=0)
    for i, m in enumerate(gold):
        # None that begins farther to the left reaches the mention.
        near = slice(bisect_left(starts, m.start - longest), bisect_left(starts, m.end))
        for j in order[near]:
            link = links[j]
            shared = min(m.end, link.end) - max(m.start, link.start)
            if shared > 0:
                yield (-shared, m.ids != link.ids, m.label != link.label), i, j


def _different(items: Iterable) -> list:
    """Without exact duplicates."""
    return list({(x.start, x.end, x.label, x.ids): x for x in items}.values())


def _place(pair: Pair) -> tuple[int, int, bool]:
    first = pair[0] or pair[1]
    assert first is not None
    return first.start, first.end, pair[0] is None


def _retired(before: Iterable[Mention], after: Iterable[Mention]) -> set[Mention]:
    """Mentions that lost an id of the corpus, because it was replaced."""
    return {
        mention
        for original, mention in zip(before, after, strict=True)
        if not set(original.ids) <= set(mention.ids)
    }


def _marks(error: LinkingError, knowledge: Knowledge, retired: set[Mention]) -> Iterator[str]:
    gold, link = error.gold, error.link
    if gold is None or not gold.ids:
        return
    if link is not None and _is_homonym(gold, link, knowledge):
        yield "homonym"
    if not all(map(knowledge.knows, gold.ids)):
        yield "missing"
    if gold in retired:
        yield "retired"
    if knowledge.is_seen is not None and not knowledge.is_seen(error.string, gold.ids):
        yield "unseen"


def _is_homonym(gold: Mention, link: Link, knowledge: Knowledge) -> bool:
    wrong = set(link.ids) - set(gold.ids)
    names = [c.name for c in link.candidates if c.id in wrong]
    others = [id for id in gold.ids if id not in link.ids]
    return any(knowledge.has_name(id, name) for name in names for id in others)
