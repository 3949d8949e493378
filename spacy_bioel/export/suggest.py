"""Choose texts to annotate: what a pipeline doubts and what is new first, no near-duplicates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import sqrt
from typing import Any
from zlib import crc32

from spacy.language import Language
from spacy.tokens import Doc

from spacy_bioel.doc import get_links, record_of
from spacy_bioel.export.rows import JsonRow, LinkedText
from spacy_bioel.loading import find_detector, find_linker, spans_key
from spacy_bioel.types import AnnotatedText, Candidate, Link

_NEW_WORD, _NEW_CONCEPT = 0.05, 0.5  # what they are worth; the greatest doubt is worth 1
_SAMPLE, _MAX_SHARE = 32, 0.8  # triples of words compared; near-duplicates share more of them
_SLACK = 0.9  # the next text is worth at least this share of the best, so few are recomputed


def link_with_doubts(nlp: Language, docs: dict[int, Doc]) -> Iterator[tuple[int, list[Link]]]:
    """Link documents (see `link_all` of `link_texts`), and add spans below the threshold.

    A link has the fact `doubt`, from 0 to 1; a span below the threshold has `nearly` instead.
    """
    detector, key = find_detector(nlp), spans_key(find_linker(nlp))
    done = list(nlp.pipe([(d, n) for n, d in docs.items()], as_tuples=True, batch_size=1 << 30))
    threshold = detector.cfg["threshold"] if detector else 1.0
    scored = detector.score_spans([doc for doc, _ in done]) if detector else [[] for _ in done]
    for (doc, n), spans in zip(done, scored, strict=True):
        group: Any = doc.spans.get(key, ())
        scores, links = (group and group.attrs.get("scores")) or [1.0] * len(group), list[Link]()
        for link, span, p in zip(get_links(doc, key), group, scores, strict=True):
            nil_threshold = (record_of(span, key) or {}).get("nil_threshold", 0.0)
            doubt = max(_nearness(p, threshold), link_doubt(link.candidates, nil_threshold))
            links.append(replace(link, candidates=(), facts={"doubt": doubt}))
        for start, end, label, p in spans:
            if p < threshold:
                span, facts = doc[start:end], {"nearly": _nearness(p, threshold)}
                links.append(Link(span.start_char, span.end_char, label, facts=facts))
        yield n, links


def link_doubt(candidates: Sequence[Candidate], nil_threshold: float) -> float:
    """Return 1 if the candidates are tied or a score is the NIL threshold; 0 if all is certain."""
    best, second = [*(c.score for c in candidates[:2]), 0.0, 0.0][:2]
    competes = best >= nil_threshold and 0 < best + second <= 1  # see `is_tied`
    return max(_nearness(best, nil_threshold), second / best if competes else 0.0)


def _nearness(score: float, threshold: float) -> float:
    return min(score / max(threshold, 1e-9), (1 - score) / max(1 - threshold, 1e-9), 1.0)


def choose_texts(
    texts: Sequence[LinkedText], annotated: Iterable[AnnotatedText] = ()
) -> Iterator[LinkedText]:
    """Yield the texts that are worth most, greedily, without blank texts and near-duplicates.

    Each earlier text with the same word, concept or doubted mention halves what that is worth.
    """
    times = Counter[Any]()
    for known in annotated:
        times.update(_aspects(known.text, known.mentions).keys())

    def worth(aspects: dict[Any, float]) -> float:
        total = sum(value * 0.5 ** times[key] for key, value in aspects.items())
        return total / sqrt(len(aspects) or 1)

    heap = sorted((-worth(_aspects(x.text, x.links)), n) for n, x in enumerate(texts))
    while heap:
        n = heappop(heap)[1]
        aspects = _aspects(texts[n].text, texts[n].links)
        now = worth(aspects)  # less than before, if other texts have been chosen
        triples = [key for key in aspects if isinstance(key, int)]
        if heap and now < _SLACK * -heap[0][0]:
            heappush(heap, (-now, n))
        elif sum(key in times for key in triples) < _MAX_SHARE * len(triples):
            times.update(aspects.keys())
            yield texts[n]


def _aspects(text: str, mentions: Any) -> dict[Any, float]:
    """Return what words, concepts and doubts are worth, and 0 for a sample of triples of words."""
    words = re.findall(r"\w+", re.sub(r"\d", "0", text.lower()))
    triples = {crc32(" ".join(words[i : i + 3]).encode()) for i in range(len(words))}
    aspects: dict[Any, float] = dict.fromkeys(sorted(triples)[:_SAMPLE], 0.0)
    aspects |= dict.fromkeys(words, _NEW_WORD)
    aspects |= dict.fromkeys((id for mention in mentions for id in mention.ids), _NEW_CONCEPT)
    for x in mentions:
        key = x.label, text[x.start : x.end].lower()
        aspects[key] = max([aspects.get(key, 0.0), *getattr(x, "facts", {}).values()])
    return aspects


def to_task(nlp: Language, text: LinkedText, *, tool: str) -> JsonRow:
    """Convert a text to a task for Prodigy or doccano, with its links as a first draft."""
    doubt = round(sum(max(x.facts.values()) for x in text.links), 2)
    task: JsonRow = {"id": text.id, "text": text.text, "meta": {"id": text.id, "doubt": doubt}}
    found = [x for x in text.links if "doubt" in x.facts]
    if tool == "doccano":
        return task | {"label": [(x.start, x.end, x.label or "Mention") for x in found]}
    task |= {"tokens": [], "spans": []}
    for t in (doc := nlp.make_doc(text.text)):
        place = {"start": t.idx, "end": t.idx + len(t), "id": t.i}
        task["tokens"].append({"text": t.text, **place, "ws": bool(t.whitespace_)})
    for x in found:
        span: Any = doc.char_span(x.start, x.end, alignment_mode="expand")
        place = {"start": span.start_char, "end": span.end_char}
        place |= {"token_start": span.start, "token_end": span.end - 1}
        about = {"label": x.label or "Mention", "kb_id": "|".join(x.ids)}
        task["spans"].append(place | about)
    return task
