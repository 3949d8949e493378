"""Make spacy_bioel/assets/annotation_rates.json.gz: how often annotators mark names of the package's
knowledge bases that are in no other mention, from training documents.

strings: by label and string, how often it was marked and how often it is there; names that the
    package gives to organisms, as "HCV", as if they were marked a few times more.
kinds: of the strings of a kind of names, the mean share.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated, Any

import srsly
import typer
from starter import ASSETS
from type_names import names_of_texts

import spacy_bioel
from spacy_bioel.corpus import read_texts
from spacy_bioel.dictionary.unambiguous import describe_names, name_kinds
from spacy_bioel.files import replacing_file
from spacy_bioel.text.normalize import normalize_name, normalize_names

_FILE = ASSETS / "annotation_rates.json.gz"
_FEWEST = 5  # strings of a kind
_GIVEN = 9
_ALL = 0.9  # share of the strings of a label that a type says nothing of
Place = tuple[str, str]  # label and string


def main(
    texts: list[Path],
    only: Annotated[str, typer.Option(help="A label; what the file has of others stays.")] = "",
) -> None:
    nlp = spacy_bioel.load()
    linker: Any = nlp.get_pipe("bioel_linker")
    names, kb = linker.generator.unambiguous_names, linker.kb
    marked, there = Counter[Place](), Counter[Place]()
    for text in (text for path in texts for text in read_texts(path)):
        doc = nlp.make_doc(text.text)
        gold = {(m.start, m.end): m.label for m in text.mentions}
        inside = {i for m in text.mentions for i in range(m.start, m.end)}
        for (start, end), labels in names.longest([doc])[0].items():
            span, label = doc[start:end], labels[0]
            is_marked = gold.get((span.start_char, span.end_char)) == label
            if len(labels) > 1 or label not in text.annotates:
                continue
            if is_marked or inside.isdisjoint(range(span.start_char, span.end_char)):
                place = label, normalize_name(span.text)
                if kb.lookup_names([place[1]])[0] < 0:
                    continue
                there[place] += 1
                marked[place] += is_marked
    about = dict(
        zip(there, describe_names(kb, kb.lookup_names([s for _, s in there])), strict=True)
    )
    have = Counter((label, type) for (label, _), of in about.items() for type in of.types)
    of_label = Counter(label for label, _ in there)
    shares: dict[str, list[float]] = defaultdict(list)
    for place, of in about.items():
        label = place[0]
        telling = {t for t in of.types if have[label, t] < _ALL * of_label[label]}
        for kind in name_kinds(of._replace(types=frozenset(telling)), label):
            shares[kind].append(marked[place] / there[place])
    strings: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for label, string in sorted(there):
        strings[label][string] = [marked[label, string], there[label, string]]
    names = [name for names, _ in names_of_texts().values() for name in names]
    for string in dict.fromkeys(normalize_names(names)):
        counts = strings["Species"].get(string, [0, 0])
        strings["Species"][string] = [n + _GIVEN for n in counts]
    kinds = {
        kind: round(sum(of_kind) / len(of_kind), 3)
        for kind, of_kind in sorted(shares.items())
        if len(of_kind) >= _FEWEST
    }
    if only:
        old = srsly.read_gzip_json(_FILE)
        strings = old["strings"] | {only: strings[only]}
        mine = {kind: share for kind, share in kinds.items() if kind.startswith(f"{only} ")}
        others = (kind for kind in old["kinds"] if not kind.startswith(f"{only} "))
        kinds = {kind: old["kinds"][kind] for kind in others} | mine
    table = json.dumps({"strings": strings, "kinds": kinds}, ensure_ascii=False)
    with replacing_file(_FILE) as path:
        path.write_bytes(gzip.compress(table.encode("utf8"), mtime=0))


if __name__ == "__main__":
    typer.run(main)
