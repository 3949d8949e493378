"""Make what finds names of any knowledge base without training: spacy_bioel/assets.

words: how often words are in texts.
everyday: which of the common ones are everyday English, and not words of the field.
weights: the weights of the evidence that a span is a name, learned from texts without annotations.

As PhenoTagger does (https://doi.org/10.1093/bioinformatics/btab019), names of one concept that are
in a text as they are count as right. So do they if they are found by another name of the concept,
or after they were misspelled, put into the plural or reordered; parts of them, their neighbours and
names of other concepts in their place count as wrong. Nothing else is looked at.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import numpy as np
import spacy
import srsly
import typer
from numpy.typing import NDArray
from spacy.language import Language

from spacy_bioel.cli.console import show_note
from spacy_bioel.corpus import read_texts
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.mentions.finder import Finding, NameFinder
from spacy_bioel.pipeline.mentions.name_evidence import COMMON, EQUAL, FEATURES, common_words
from spacy_bioel.storage.atomic import replacing_file
from spacy_bioel.tuning.development import Development
from spacy_bioel.tuning.fusion import fit_fusion

ASSETS = Path("spacy_bioel") / "assets"
_FEWEST = 3  # times that a word is in the texts
# A word of the field is so many times as frequent in its texts as in everyday English.
_OF_THE_FIELD = 15.0
_BATCH = 32
_HIDDEN = 0.5  # share of names that are hidden, so that their other names are all that is left
_LONG_ENOUGH = 6  # letters of a word that is misspelled
Span = tuple[int, int]
TextsArgument = Annotated[list[Path], typer.Argument(help="Corpora; their mentions are not read.")]

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def words(texts: TextsArgument) -> None:
    """Count words, and write those that are not rare."""
    counts = Counter(
        word
        for path in texts
        for text in read_texts(path)
        for word in re.findall("[a-z]+", text.text.lower())
    )
    kept = {word: n for word, n in sorted(counts.items(), key=_most_first) if n >= _FEWEST}
    table = {"total": counts.total(), "counts": kept}
    with replacing_file(ASSETS / "words.json.gz") as path:
        data = json.dumps(table, separators=(",", ":")).encode()
        path.write_bytes(gzip.compress(data, mtime=0))
    show_note(f"{len(kept):,} of {len(counts):,} words")


@app.command()
def everyday(
    frequencies: Annotated[
        Path, typer.Argument(help="large_en.msgpack.gz of the package wordfreq.")
    ],
) -> None:
    """List the common words that the texts do not have far more often than everyday English."""
    english = english_words(frequencies)
    kept = [
        word
        for word, frequency in common_words().items()
        if COMMON <= frequency < _OF_THE_FIELD * english.get(word, 0.0)
    ]
    with replacing_file(ASSETS / "everyday.txt") as path:
        path.write_text("\n".join(sorted(kept)) + "\n", encoding="utf8")
    show_note(f"{len(kept):,} words")


def english_words(frequencies: Path) -> dict[str, float]:
    """Read how often words are in a million of everyday English, as wordfreq has it."""
    # The words of each hundredth of a decade, the most frequent first.
    steps = srsly.msgpack_loads(gzip.decompress(frequencies.read_bytes()))[1:]
    return {word: 1e6 * 10 ** (-i / 100) for i, words in enumerate(steps) for word in words}


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


@app.command()
def weights(
    texts: TextsArgument,
    kb: Annotated[list[Path], typer.Option(help="Knowledge base; may be repeated.")],
    documents: Annotated[int, typer.Option(help="Documents for each knowledge base.")] = 1500,
    seed: int = 0,
) -> None:
    """Learn the weights of the evidence."""
    random = Random(seed)
    all_texts = [text.text for path in texts for text in read_texts(path)]
    tokenizer = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})
    parts = []
    for folder in kb:
        chosen = random.sample(all_texts, min(documents, len(all_texts)))
        features, right = gather(NameFinder(KnowledgeBase.open(folder)), nlp, chosen, random)
        show_note(f"{folder.name}: {len(right):,} spans, {right.mean():.3f} right")
        parts.append((features, right))
    features = np.concatenate([part for part, _ in parts])
    right = np.concatenate([part for _, part in parts])
    development = Development(
        features,
        [np.array([i]) for i in range(len(right))],  # each span against none
        [np.array([is_right]) for is_right in right.tolist()],
        [""] * len(right),
        np.zeros(len(right), dtype=np.int64),
    )
    fusion = fit_fusion(development, n_hidden=8, l2=1e-4, seed=seed)
    likely = 1 / (1 + np.exp(-fusion.scores(features)))
    show_note(f"{np.mean((likely > 0.5) == right):.4f} of the training spans are judged right")
    about = {"seed": seed, "spans": len(right)}
    with replacing_file(ASSETS / "finder.json") as path:
        path.write_text(json.dumps(fusion.to_json(FEATURES) | about) + "\n", encoding="utf8")


def gather(
    finder: NameFinder, nlp: Language, texts: Sequence[str], random: Random
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Features of spans in texts and in changed texts, and whether each is right."""
    parts = []
    for start in range(0, len(texts), _BATCH):
        docs = list(nlp.pipe(texts[start : start + _BATCH]))
        anchors = _anchors(finder, docs)
        parts.append(_judged(finder, docs, anchors, random))
        changed = [
            _changed(doc.text, of_doc, random) for doc, of_doc in zip(docs, anchors, strict=True)
        ]
        docs = list(nlp.pipe([text for text, _ in changed]))
        parts.append(_judged(finder, docs, [of_doc for _, of_doc in changed], random))
    return np.concatenate([f for f, _ in parts]), np.concatenate([r for _, r in parts])


def _anchors(finder: NameFinder, docs: list) -> list[dict[Span, int]]:
    """Names of one concept that are in the documents as they are: the concept of each span."""
    how = Finding(variants=False, typos=False, learned=False, abbreviations=False, shorthand=False)
    found = finder.find(docs, how)
    anchors = []
    for doc, names in zip(docs, found, strict=True):
        indptr, concepts, _ = finder.kb.concepts_of_names(np.array([n.row for n in names], int))
        anchors.append(
            {
                (doc[n.first].idx, doc[n.last].idx + len(doc[n.last])): int(concepts[indptr[i]])
                for i, n in enumerate(names)
                if indptr[i + 1] - indptr[i] == 1
            }
        )
    return anchors


def _changed(text: str, anchors: dict[Span, int], random: Random) -> tuple[str, dict[Span, int]]:
    """A text with some of its names misspelled, in the plural or in another order."""
    pieces, at, length, moved = [], 0, 0, {}
    for (start, end), concept in sorted(anchors.items()):
        name = random.choice((_misspelled, _plural, _reordered))(text[start:end], random)
        pieces += [text[at:start], name]
        length += start - at
        moved[length, length + len(name)] = concept
        length += len(name)
        at = end
    return "".join([*pieces, text[at:]]), moved


def _misspelled(name: str, random: Random) -> str:
    words = name.split(" ")
    long = [i for i, word in enumerate(words) if len(word) >= _LONG_ENOUGH and word.isalpha()]
    if not long:
        return name
    i = random.choice(long)
    at = random.randrange(1, len(words[i]) - 1)
    before, a, b, after = words[i][:at], words[i][at], words[i][at + 1], words[i][at + 2 :]
    words[i] = before + random.choice((b + a, a, a + a + b, a + random.choice("aeilnrst"))) + after
    return " ".join(words)


def _plural(name: str, _: Random) -> str:
    return name if name.endswith("s") else name + "s"


def _reordered(name: str, _: Random) -> str:
    words = name.split(" ")
    return f"{words[-1]} of the {' '.join(words[:-1])}" if len(words) > 1 else name


def _judged(
    finder: NameFinder, docs: list, anchors: list[dict[Span, int]], random: Random
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Spans that overlap an anchor and are not longer: features, and whether they are right."""
    words, hits = finder.look_up(docs, Finding(abbreviations=False, shorthand=False))
    rows, features = finder.evidence.table(words, hits)
    is_whole = (features[:, EQUAL] > 0) & (hits.by < 0) & (hits.gap == hits.end)
    hidden = is_whole & np.array([random.random() < _HIDDEN for _ in rows], dtype=bool)
    hits, rows, features = finder.weigh(words, hits.take(~hidden)).allowed()
    starts, ends = words.places(hits.start, hits.end)
    indptr, concepts, _ = finder.kb.concepts_of_names(rows)
    kept, right = [], []
    for i, (doc, start, end) in enumerate(
        zip(words.doc[hits.start].tolist(), starts.tolist(), ends.tolist(), strict=True)
    ):
        near = [s for s in anchors[doc] if s[0] < end and start < s[1]]
        if hits.gap[i] < hits.end[i]:  # "and" binds no names that are known to be right
            continue
        is_longer = any(start <= s[0] and s[1] <= end and (start, end) != s for s in near)
        own = set(concepts[indptr[i] : indptr[i + 1]].tolist())
        if not near or is_longer:
            continue
        if (start, end) in anchors[doc]:
            kept.append(i)
            right.append(anchors[doc][start, end] in own)
        elif not own & {anchors[doc][s] for s in near}:
            kept.append(i)
            right.append(False)
    return features[kept], np.array(right, dtype=bool)


if __name__ == "__main__":
    app()
