"""Find short names of genes that texts mostly define as something else, such as "CSF".

Writes spacy_bioel/assets/short_forms.txt. A definition is of a gene if any of its words occurs in
the names of a gene with this short name:
`python training/scripts/short_forms.py assets/*/train.jsonl`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import typer
from starter import ASSETS

from spacy_bioel.corpus import read_texts
from spacy_bioel.entities.homonyms import (
    HOMONYM_FEATURES,
    GeneMention,
    HomonymResolver,
    WordsOfDocument,
)
from spacy_bioel.entities.usual_names import usual_names
from spacy_bioel.files import replacing_file
from spacy_bioel.kb.bundled import starter_kb
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.text.sentences import find_abbreviations
from spacy_bioel.types import Candidate

_FILE = ASSETS / "short_forms.txt"
# Of the symbols of a family: "RXR" means RXRA and others, and "HIF" HIF1A.
_ENDINGS_OF_MEMBERS = ("", "1a", *"123456789abcdg")
_MIN_DEFINITIONS, _MIN_SHARE = 3, 0.75  # of another meaning


def main(texts: list[Path]) -> None:
    genes = HomonymResolver(starter_kb("starter:genes"))
    n_other, n = Counter[str](), Counter[str]()
    different = {text.text for path in texts for text in read_texts(path)}
    for text in different:
        for short, long in find_abbreviations(text).items():
            name, usual = normalize_name(short), usual_names().get(short)
            if genes.genes_of(name):
                members = (name + ending for ending in _ENDINGS_OF_MEMBERS)
                ids = genes.genes_of(*members, *(usual.symbols if usual else ()))
                n[short] += 1
                n_other[short] += len(long.split()) > 1 and _is_other(genes, short, ids, long)
    kept = [s for s in n if n_other[s] >= max(_MIN_DEFINITIONS, _MIN_SHARE * n[s])]
    with replacing_file(_FILE) as path:
        path.write_text("\n".join(sorted(kept)) + "\n", encoding="utf8")


def _is_other(genes: HomonymResolver, short: str, ids: Iterable[str], long: str) -> bool:
    """Tell whether a long form shares no word with the names of these genes."""
    mention = GeneMention(short, (short,), long, WordsOfDocument(""))
    column = HOMONYM_FEATURES.index("defined_otherwise")
    return all(genes.features(Candidate(id, 1.0), mention)[column] for id in ids)


if __name__ == "__main__":
    typer.run(main)
