"""MeSH XML: descriptors (descYYYY.xml) and supplementary records (suppYYYY.xml)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import iter_xml, open_text
from spacy_bioel.io.records import curie, one_record, unique_names
from spacy_bioel.types import Concept

_HEADING = "HeadingMappedToList/HeadingMappedTo/DescriptorReferredTo/DescriptorUI"


def tree_types(trees: Iterable[str]) -> tuple[str, ...]:
    """Semantic types of MeSH tree numbers: second-level codes, then top letters.

    trees (Iterable[str]): E.g. ["C18.452.394.750", "C19.246"].
    RETURNS (tuple[str, ...]): E.g. ("C18", "C19", "C").
    """
    # CTD appends supplementary records to tree numbers with a slash: "C19.246/C535484".
    codes = list(dict.fromkeys(re.split("[./]", tree.strip())[0] for tree in trees))
    return tuple(dict.fromkeys(filter(None, codes + [code[:1] for code in codes])))


def read_mesh_xml(path: str | os.PathLike[str], *, prefix: str = "MESH") -> Iterator[Concept]:
    """Stream MeSH descriptors or supplementary records, depending on the first lines.

    Types and parents of a descriptor follow from its tree numbers: the file is read twice, and
    only the tree is kept in memory. The parents of a supplementary record are its mapped headings;
    it has no types.

    prefix (str): Vocabulary of the ids, which the file does not have.
    YIELDS (Concept): Names are the heading, the preferred concept's terms, then all others.
    RAISES BioelError: [B111] not well-formed, [B121] not MeSH XML, [B122] record without id or
        name; errors of `open_binary`.
    """
    with open_text(path) as file:
        head = file.read(4096)
    if "<SupplementalRecordSet" in head:
        for record in iter_xml(path, "SupplementalRecord"):
            with one_record(path):
                concept_id, names = _id_and_names(path, record, "SupplementalRecord", prefix)
                # A star marks headings that articles are indexed with.
                headings = (e.text or "" for e in record.iterfind(_HEADING))
                parents = tuple(dict.fromkeys(curie(ui.lstrip("*"), prefix) for ui in headings))
                yield Concept(concept_id, names, parents=parents, definition=_note(record))
    elif "<DescriptorRecordSet" in head:
        ui_of_tree = {
            tree: record.findtext("DescriptorUI", "").strip()
            for record in iter_xml(path, "DescriptorRecord")
            for tree in _trees(record)
        }
        for record in iter_xml(path, "DescriptorRecord"):
            with one_record(path):
                concept_id, names = _id_and_names(path, record, "Descriptor", prefix)
                above = (ui_of_tree.get(tree.rpartition(".")[0], "") for tree in _trees(record))
                parents = tuple(dict.fromkeys(curie(ui, prefix) for ui in above if ui))
                yield Concept(concept_id, names, tree_types(_trees(record)), parents, _note(record))
    else:
        raise BioelError(Errors.B121.format(path=path))


def _trees(record: Element) -> list[str]:
    return [(e.text or "").strip() for e in record.iterfind("TreeNumberList/TreeNumber")]


def _note(record: Element) -> str:
    """Scope note of the preferred concept, or note of a supplementary record, on one line."""
    path = "ConceptList/Concept[@PreferredConceptYN='Y']/ScopeNote"
    return " ".join((record.findtext(path) or record.findtext("Note") or "").split())


def _id_and_names(
    path: str | os.PathLike[str], record: Element, kind: str, prefix: str
) -> tuple[str, tuple[str, ...]]:
    ui = record.findtext(f"{kind}UI", "").strip()
    heading = record.findtext(f"{kind}Name/String", "").strip()
    if not ui or not heading:
        raise BioelError(Errors.B122.format(path=path, kind=kind, ui=ui, name=heading))
    concepts = record.findall("ConceptList/Concept")
    concepts.sort(key=lambda concept: concept.get("PreferredConceptYN") != "Y")
    terms = [term.findtext("String", "") for c in concepts for term in c.iterfind("TermList/Term")]
    return curie(ui, prefix), unique_names([heading, *terms])
