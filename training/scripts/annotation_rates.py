"""Count how often training documents annotate names of the bundled knowledge bases.

Names inside other mentions are not counted. Writes spacy_bioel/assets/annotation_rates.json.gz:

strings: for each label and string, how often it was annotated and how often it occurs. Names that
    the package itself adds to organisms, such as "HCV", get some extra annotations.
kinds: the mean annotation rate of the strings of each kind of name.
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
_MIN_STRINGS = 5  # of a kind of name
_EXTRA_ANNOTATIONS = 9
# A type that at least this share of the strings of a label have tells nothing about them.
_UNINFORMATIVE_SHARE = 0.9
LabelledString = tuple[str, str]  # label, normalised string


def main(
    texts: list[Path],
    only: Annotated[str, typer.Option(help="Update this label only.")] = "",
) -> None:
    nlp = spacy_bioel.load()
    linker: Any = nlp.get_pipe("bioel_linker")
    names, kb = linker.generator.unambiguous_names, linker.kb
    n_annotated, n_found = Counter[LabelledString](), Counter[LabelledString]()
    for text in (text for path in texts for text in read_texts(path)):
        doc = nlp.make_doc(text.text)
        gold = {(m.start, m.end): m.label for m in text.mentions}
        inside = {i for m in text.mentions for i in range(m.start, m.end)}
        for (start, end), labels in names.longest([doc])[0].items():
            span, label = doc[start:end], labels[0]
            is_annotated = gold.get((span.start_char, span.end_char)) == label
            if len(labels) > 1 or label not in text.annotates:
                continue
            if is_annotated or inside.isdisjoint(range(span.start_char, span.end_char)):
                key = label, normalize_name(span.text)
                if kb.lookup_names([key[1]])[0] < 0:
                    continue
                n_found[key] += 1
                n_annotated[key] += is_annotated
    name_rows = kb.lookup_names([string for _, string in n_found])
    descriptions = dict(zip(n_found, describe_names(kb, name_rows), strict=True))
    n_with_type = Counter(
        (label, type) for (label, _), name in descriptions.items() for type in name.types
    )
    n_strings = Counter(label for label, _ in n_found)
    rates: dict[str, list[float]] = defaultdict(list)
    for key, name in descriptions.items():
        label = key[0]
        limit = _UNINFORMATIVE_SHARE * n_strings[label]
        types = frozenset(t for t in name.types if n_with_type[label, t] < limit)
        for kind in name_kinds(name._replace(types=types), label):
            rates[kind].append(n_annotated[key] / n_found[key])
    strings: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for label, string in sorted(n_found):
        strings[label][string] = [n_annotated[label, string], n_found[label, string]]
    organism_names = [name for names, _ in names_of_texts().values() for name in names]
    for string in dict.fromkeys(normalize_names(organism_names)):
        counts = strings["Species"].get(string, [0, 0])
        strings["Species"][string] = [n + _EXTRA_ANNOTATIONS for n in counts]
    kinds = {
        kind: round(sum(kind_rates) / len(kind_rates), 3)
        for kind, kind_rates in sorted(rates.items())
        if len(kind_rates) >= _MIN_STRINGS
    }
    if only:
        old = srsly.read_gzip_json(_FILE)
        strings = old["strings"] | {only: strings[only]}
        updated = {kind: rate for kind, rate in kinds.items() if kind.startswith(f"{only} ")}
        others = (kind for kind in old["kinds"] if not kind.startswith(f"{only} "))
        kinds = {kind: old["kinds"][kind] for kind in others} | updated
    table = json.dumps({"strings": strings, "kinds": kinds}, ensure_ascii=False)
    with replacing_file(_FILE) as path:
        path.write_bytes(gzip.compress(table.encode("utf8"), mtime=0))


if __name__ == "__main__":
    typer.run(main)
