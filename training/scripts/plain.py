"""Read corpora in JSON lines: tokenised sentences, and articles with mentions in other files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import srsly

from spacy_bioel.types import AnnotatedText, Mention

_GROUP_LENGTH = 1000  # characters of the sentences of one training document


def read_sentences(paths: Sequence[Path], split: str) -> Iterator[AnnotatedText]:
    """Read sentences from records {"split", "tokens", "label", "spans": [[first, last + 1]]}.

    Tokens are joined with spaces; the tokenizer of the package splits at the same places.

    paths (Sequence[Path]): The same sentences, each file with the mentions of another label.
    """
    for number, records in enumerate(zip(*map(srsly.read_gzip_jsonl, paths), strict=True), start=1):
        if records[0]["split"] == split:
            mentions = tuple(m for record in records for m in _mentions_of(record))
            yield AnnotatedText(str(number), " ".join(records[0]["tokens"]), mentions)


def _mentions_of(record: dict[str, Any]) -> Iterator[Mention]:
    starts = list(accumulate((len(token) + 1 for token in record["tokens"]), initial=0))
    for first, end in record["spans"]:
        yield Mention(starts[first], starts[end] - 1, record["label"])


def read_articles(
    path: Path, mentions: Sequence[tuple[str, Collection[str], Path]]
) -> Iterator[AnnotatedText]:
    """Read articles from records {"id", "text"}, and their mentions from other files.

    A file of mentions has records {"id", "mentions": [{"start", "end", "id", "parts"}]}.
    Discontinuous mentions are dropped.

    mentions (Sequence): For each file the label, the concepts whose mentions are dropped, the path.
    """
    mentions_of: dict[str, list[Mention]] = {}
    for label, dropped, file in mentions:
        for record in srsly.read_gzip_jsonl(file):
            mentions_of.setdefault(record["id"], []).extend(
                Mention(m["start"], m["end"], label)
                for m in record["mentions"]
                if m["parts"] == 1 and m["id"] not in dropped
            )
    for record in srsly.read_gzip_jsonl(path):
        yield AnnotatedText(record["id"], record["text"], tuple(mentions_of.get(record["id"], ())))


def grouped(texts: Iterable[AnnotatedText]) -> Iterator[AnnotatedText]:
    """Join consecutive short texts with the same annotated labels, to fill training batches."""
    group: list[AnnotatedText] = []
    for text in texts:
        is_full = sum(len(t.text) for t in group) + len(text.text) > _GROUP_LENGTH
        if group and (is_full or text.annotates != group[0].annotates):
            yield _joined(group)
            group = []
        group.append(text)
    if group:
        yield _joined(group)


def _joined(texts: list[AnnotatedText]) -> AnnotatedText:
    if len(texts) == 1:
        return texts[0]
    starts = accumulate((len(text.text) + 1 for text in texts), initial=0)
    mentions = tuple(
        replace(m, start=m.start + start, end=m.end + start)
        for text, start in zip(texts, starts, strict=False)
        for m in text.mentions
    )
    return replace(texts[0], text="\n".join(text.text for text in texts), mentions=mentions)
