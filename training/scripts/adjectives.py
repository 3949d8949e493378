"""Find adjectives that stand for nouns in synonyms, "renal" for "kidney": the concepts of several
vocabularies have names that differ in them alone. No text is read.

Writes spacy_bioel/assets/adjectives.json, from each adjective to its noun.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated

import srsly
import typer

from spacy_bioel.cli.console import show_note
from spacy_bioel.kb.gazetteer import BagsOfWords, stem_key
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name, stem_of, words_of

OUTPUT = Path("spacy_bioel") / "assets" / "adjectives.json"
_ADJECTIVE = re.compile(r"[a-z]+(?:al|ar|ic|iac|ary|ory|ine|ous|oid)")
_NOUN = re.compile(r"[a-z]{3,}")
_PREPOSITIONS = frozenset("of in with without to by due from for on at".split())
_VOCABULARIES = 2
_SHARE = 0.1  # of the concepts with the rarer word, those that have both
_HEAD = 0.08  # part of the names with a noun in which it is the head
# Nouns, of the neck as well, of other cells, and the stem of "test".
_LEFT_OUT = frozenset("intestine cervical lymphoblastic lymphoid myeloid testicular".split())


def adjectives(kb: Annotated[list[Path], typer.Argument(help="Knowledge bases.")]) -> None:
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    words: dict[str, Counter[str]] = defaultdict(Counter)
    heads: dict[str, float] = defaultdict(float)
    for folder in kb:
        opened = KnowledgeBase.open(folder)
        bags = BagsOfWords.from_kb(opened)
        stems = {stem_key(word): stem_of(word) for word in bags.words}
        for word, n in bags.words.items():
            words[stem_of(word)][word] += n
        for stem, share in heads_of(list(opened.names)).items():
            heads[stem] = max(heads[stem], share)
        of = bags.substitutes
        for key, by, share in zip(of.word.tolist(), of.stem, of.share.tolist(), strict=True):
            shares[stems[key], by].append(share)
    nouns: dict[str, str] = {}
    for pair, found in sorted(shares.items(), key=lambda item: (-sum(item[1]), item[0])):
        adjective, noun = (words[stem].most_common(1)[0][0] for stem in pair)
        is_pair = _ADJECTIVE.fullmatch(adjective) and _NOUN.fullmatch(noun)
        is_pair = is_pair and adjective not in _LEFT_OUT and not _ADJECTIVE.fullmatch(noun)
        is_head = heads[pair[1]] > max(heads[pair[0]], _HEAD)
        if is_pair and is_head and sum(share >= _SHARE for share in found) >= _VOCABULARIES:
            nouns.setdefault(adjective, noun)
    srsly.write_json(OUTPUT, dict(sorted(nouns.items())), indent=1)
    show_note(f"{len(nouns)} adjectives")


def heads_of(names: list[str]) -> dict[str, float]:
    """Of each stem, the share of its names that it is the head of: "abnormality" in "abnormality of
    the eye", "defect" in "septal defect".
    """
    counts: Counter[str] = Counter()
    heads: Counter[str] = Counter()
    for name in names:
        words = words_of(normalize_name(name))
        counts.update(map(stem_of, words))
        if "," in name:
            words = words_of(normalize_name(name.partition(",")[0])) or words
        before = next((i for i, w in enumerate(words) if i and w in _PREPOSITIONS), len(words))
        heads[stem_of(words[before - 1])] += 1
    return {stem: n / counts[stem] for stem, n in heads.items()}


if __name__ == "__main__":
    typer.run(adjectives)
