"""Find adjectives that replace nouns in synonyms, such as "renal" and "kidney".

A pair is kept if names of the same concept differ only in these words in several vocabularies. No
text is read. Writes spacy_bioel/assets/adjectives.json, which maps each adjective to its noun.
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
from spacy_bioel.text.normalize import PREPOSITIONS, normalize_name, stem_of, words_of

OUTPUT = Path("spacy_bioel") / "assets" / "adjectives.json"
_ADJECTIVE = re.compile(r"[a-z]+(?:al|ar|ic|iac|ary|ory|ine|ous|oid)")
_NOUN = re.compile(r"[a-z]{3,}")
_MIN_VOCABULARIES = 2
_MIN_SHARE = 0.1  # concepts with both words, as a share of those with the rarer word
_MIN_HEAD_SHARE = 0.08  # share of the names with a noun in which the noun is the head
# Nouns; "cervical", which also refers to the neck; other cells; and the stem of "test".
_EXCLUDED = frozenset("intestine cervical lymphoblastic lymphoid myeloid testicular".split())


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
        pairs = bags.substitutes
        columns = pairs.word.tolist(), pairs.replacement, pairs.share.tolist()
        for word_key, other, share in zip(*columns, strict=True):
            shares[stems[word_key], stem_of(other)].append(share)
    nouns: dict[str, str] = {}
    for pair, pair_shares in sorted(shares.items(), key=lambda item: (-sum(item[1]), item[0])):
        adjective, noun = (words[stem].most_common(1)[0][0] for stem in pair)
        is_pair = _ADJECTIVE.fullmatch(adjective) and _NOUN.fullmatch(noun)
        is_pair = is_pair and adjective not in _EXCLUDED and not _ADJECTIVE.fullmatch(noun)
        is_head = heads[pair[1]] > max(heads[pair[0]], _MIN_HEAD_SHARE)
        n_vocabularies = sum(share >= _MIN_SHARE for share in pair_shares)
        if is_pair and is_head and n_vocabularies >= _MIN_VOCABULARIES:
            nouns.setdefault(adjective, noun)
    srsly.write_json(OUTPUT, dict(sorted(nouns.items())), indent=1)
    show_note(f"{len(nouns)} adjectives")


def heads_of(names: list[str]) -> dict[str, float]:
    """Return, for each stem, the share of the names with it in which it is the head.

    The head of "abnormality of the eye" is "abnormality", that of "septal defect" is "defect".
    """
    counts: Counter[str] = Counter()
    heads: Counter[str] = Counter()
    for name in names:
        words = words_of(normalize_name(name))
        counts.update(map(stem_of, words))
        if "," in name:
            words = words_of(normalize_name(name.partition(",")[0])) or words
        end = next((i for i, w in enumerate(words) if i and w in PREPOSITIONS), len(words))
        heads[stem_of(words[end - 1])] += 1
    return {stem: n / counts[stem] for stem, n in heads.items()}


if __name__ == "__main__":
    typer.run(adjectives)
