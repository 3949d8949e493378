"""Corpora are found, converted and mixed, and no document of one split is in the other."""

import gzip
import json
import zipfile
from pathlib import Path

import corpora
import documents
import mixtures
import pytest
import specs
import srsly
from spacy import blank

from spacy_bioel.corpus import docs_to_bin, read_texts, text_to_doc
from spacy_bioel.errors import BioelError
from spacy_bioel.io.jsonl import read_texts_jsonl
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import AnnotatedText, Mention

pytestmark = pytest.mark.usefixtures("project")
TRAIN = """\
1|t|Aspirin and fever
1|a|Aspirin relieves flu.
1\t0\t7\tAspirin\tChemical\tD001241
1\t12\t17\tfever\tDisease\tD005334

"""
DEV = "2|t|Fever\n2|a|None.\n2\t0\t5\tFever\tDisease\tD005334\n\n"
DESCRIPTORS = """\
D001241\tAspirin\tAcetylsalicylic Acid\tD02.455
D005334\tFever\tPyrexia\tC23.888
D000003\tAbattoirs\tAbattoir\tJ01.576
"""
BOTH = ("train", "dev")
SUPPLEMENTARY = "C000001\taspirin lysinate\t\tD001241\nC000002\tbarn\t\tD000003\n"


@pytest.fixture
def bc5cdr(tmp_path) -> Path:
    """A folder as people have them: corpus and ontology somewhere below, no test documents."""
    folder = tmp_path / "my data"
    (folder / "CDR").mkdir(parents=True)
    (folder / "mesh" / "2024").mkdir(parents=True)
    (folder / "CDR" / "CDR_TrainingSet.PubTator.txt").write_text(TRAIN)
    (folder / "CDR" / "CDR_DevelopmentSet.PubTator.txt").write_text(DEV)
    with gzip.open(folder / "mesh" / "2024" / "descriptors.tsv.gz", "wt") as file:
        file.write(DESCRIPTORS)
    with gzip.open(folder / "mesh" / "2024" / "supplementary.tsv.gz", "wt") as file:
        file.write(SUPPLEMENTARY)
    (folder / "mesh" / "retired_ids.tsv").write_text("C999999\tD001241\n")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_fetch_finds_files_by_name(bc5cdr, capsys):
    corpora.fetch("bc5cdr", data=str(bc5cdr))
    assert names(Path("assets/bc5cdr")) == [
        "dev.PubTator.txt",
        "kb/descriptors.tsv.gz",
        "kb/retired_ids.tsv",
        "kb/supplementary.tsv.gz",
        "train.PubTator.txt",
    ]
    said = capsys.readouterr().err
    assert "No test split of bc5cdr: CDR_TestSet.PubTator.txt was not found." in said
    # The next run needs the folder no more.
    corpora.fetch("bc5cdr")
    assert "assets/bc5cdr is complete." in capsys.readouterr().err


BAD_ROW = b'C1\t"a\tb"\t\tD001241'


@pytest.mark.parametrize(
    ("bad", "n_rows", "n_bad"),
    [
        (BAD_ROW, 10_000, 1),
        (BAD_ROW, 10_000, 2),
        (BAD_ROW, 2, 1),
    ],
)
def test_one_bad_row_of_ten_thousand_is_left_out(bc5cdr, capsys, bad, n_rows, n_bad):
    """In a table of a corpus; more are an error, as is one in a small table."""
    rows = [b"C%06d\tdrug %d\t\tD001241" % (n, n) for n in range(n_rows - n_bad)]
    rows[1:1] = [bad] * n_bad
    with gzip.open(bc5cdr / "mesh" / "2024" / "supplementary.tsv.gz", "wb") as file:
        file.write(b"\n".join(rows))
    corpora.fetch("bc5cdr", data=str(bc5cdr))
    place = f"{Path('assets/bc5cdr/kb/supplementary.tsv.gz')}, line 2"
    if n_bad * 10_000 > n_rows:
        with pytest.raises(BioelError, match=rf"\[B\d+\] {place}"):
            corpora.kb("bc5cdr")
        assert not Path("kb/bc5cdr").exists()
        return
    corpora.kb("bc5cdr")
    assert len(KnowledgeBase.open("kb/bc5cdr").ids) == 9_999 + 2
    said = capsys.readouterr().err
    assert "Left out 1 of 10,000 records:" in said and place in said


def test_archive_is_downloaded_and_unpacked(bc5cdr, tmp_path):
    archive = tmp_path / "server" / "CDR_Data.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as file:
        for split in ("Training", "Development", "Test"):
            file.writestr(f"CDR_Data/CDR_{split}Set.PubTator.txt", DEV)
    for path in bc5cdr.glob("CDR/*"):
        path.unlink()
    project = {"assets": [{"dest": "assets/downloads/CDR_Data.zip", "url": archive.as_uri()}]}
    Path("project.yml").write_text(json.dumps(project))
    corpora.fetch("bc5cdr", data=str(bc5cdr))
    assert "train.PubTator.txt" in names(Path("assets/bc5cdr"))
    assert "CDR_Data.zip" in names(Path("assets/downloads"))


def test_failed_download_leaves_nothing(tmp_path):
    url = (tmp_path / "gone.zip").as_uri()
    project = {"assets": [{"dest": "assets/downloads/CDR_Data.zip", "url": url}]}
    Path("project.yml").write_text(json.dumps(project))
    with pytest.raises(ValueError, match=r"CDR_TrainingSet.*gone.zip failed .*--vars.data FOLDER"):
        corpora.fetch("bc5cdr")
    assert names(Path("assets")) == []


# Mixtures.


@pytest.fixture
def types(bc5cdr) -> Path:
    """Beside BC5CDR: genes with families, species of two fifths, and names of genes."""
    genes = "7|t|Abc binds xyz kinases.\n7|a|Also Abd.\n"
    genes += "7\t0\t3\tAbc\tGene\t11,12(Tax:10090)\n7\t10\t21\txyz kinases\tFamilyName\n\n"
    bad = "8|t|Abc\n8|a|x\n8\t1\t4\tAbc\tGene\t11\n\n"
    with gzip.open(bc5cdr / "gnormplus.PubTator.txt.gz", "wt") as file:
        other = genes.replace("7\t", "9\t").replace("7|", "9|").replace("Abd", "Abe")
        file.write(genes + bad + other)
    with gzip.open(bc5cdr / "Homo_sapiens.gene_info.gz", "wt") as file:
        file.write("#tax_id\tGeneID\tSymbol\tSynonyms\tdbXrefs\tdescription\ttype_of_gene\t")
        file.write("Full_name_from_nomenclature_authority\tOther_designations\n")
        file.write("9606\t11\tABC\tAbc1\tHGNC:1\ta b c\tprotein-coding\t-\t-\n")
    return bc5cdr


def test_fifths_ids_of_labels_and_documents_that_cannot_be_read(types, capsys):
    assert [documents.fifth_of(id) for id in ("7", "8", "9")] == [0, 3, 1]
    corpora.fetch("gnormplus", data=str(types))
    said = capsys.readouterr().err
    assert said.count("Left out: [B106]") == said.count("B106") == 1  # both splits are of one file
    found = [text for split in BOTH for text in read_texts_jsonl(f"assets/gnormplus/{split}.jsonl")]
    assert sorted(text.id for text in found) == ["7", "9"]
    assert [(m.label, m.ids) for m in found[0].mentions] == [
        ("Gene", ("NCBIGene:11", "NCBIGene:12"))
    ]


def test_a_mixture_says_what_each_document_annotates(types):
    mixture = "bc5cdr+gnormplus"
    corpora.fetch(mixture, data=str(types))
    annotates = {}
    for split in BOTH:
        corpora.convert(mixture, split)
        texts = read_texts(Path("corpus") / mixture / f"{split}.spacy")
        annotates |= {text.id: text.annotates for text in texts}
    both = ("Disease", "Chemical")
    assert annotates == {"1": both, "2": both, "7": ("Gene",), "9": ("Gene",)}
    corpora.kb(mixture)
    kb = KnowledgeBase.open(f"kb/{mixture}")
    assert list(kb.ids) == ["MESH:C000001", "MESH:D001241", "MESH:D005334", "NCBIGene:11"]
    gene = kb.find("NCBIGene:11")
    types_of_gene = ("Gene", "protein-coding", "NCBITaxon:9606")
    assert (kb.types_of(gene), kb.xrefs(gene)) == (types_of_gene, ("HGNC:1",))
    assert kb.meta["source"] == "MeSH, diseases and chemicals, NCBI Gene, human"
    assert kb.canonical("MESH:C999999") == "MESH:D001241"
    label_types = {"Disease": ["C", "F03"], "Chemical": ["D"], "Gene": ["Gene"]}
    assert corpora.load_spec(mixture)["label_types"] == label_types


def test_development_documents_of_one_corpus_are_not_trained_on_by_another(types):
    # By its id, this one is for development; BC5CDR has it for training.
    with gzip.open(types / "gnormplus.PubTator.txt.gz", "at") as file:
        file.write("1|t|Aspirin and fever\n1|a|Aspirin  relieves flu.\n\n")
    mixture = "bc5cdr+gnormplus"
    corpora.fetch(mixture, data=str(types))
    for split, expected in (("train", ["9"]), ("dev", ["2", "7", "1"])):
        path = corpora.find_split(mixture, split)
        assert [text.id for text in read_texts_jsonl(path)] == expected


def test_development_documents_are_trained_on_in_the_end(types, monkeypatch):
    def texts(mixture: str, split: str) -> list[str]:
        corpora.fetch(mixture, data=str(types))
        found = read_texts_jsonl(corpora.find_split(mixture, split))
        # Short documents are trained on together.
        return sorted(line for text in found for line in text.text.split("\n") if line)

    mixture = "bc5cdr+gnormplus"
    train, dev = texts(mixture, "train"), texts(mixture, "dev")
    assert texts(f"{mixture}+dev", "train") == sorted([*train, *dev])
    assert texts(f"{mixture}+dev", "dev") == dev
    monkeypatch.setitem(specs.DEV_SHARES, "half_dev", 0.2)  # there are only two
    assert texts(f"{mixture}+half_dev", "dev") == ["Fever None."]
    assert texts(f"{mixture}+half_dev", "train") == sorted(
        [*train, "Abc binds xyz kinases. Also Abd."]
    )


def test_documents_of_a_corpus_are_left_out_of_a_mixture(types):
    with gzip.open(types / "gnormplus.PubTator.txt.gz", "at") as file:
        file.write("9a|t|Aspirin and fever\n9a|a|Aspirin  relieves flu.\n\n")  # also in BC5CDR
    assert documents.fifth_of("9a") > 0  # for training
    seen, genes = "Aspirin and fever Aspirin", "Abc binds xyz kinases."
    for mixture, with_seen, split in (
        ("bc5cdr+gnormplus", True, "train"),
        ("bc5cdr+gnormplus+without+bc5cdr_chemical", False, "train"),
        ("bc5cdr+gnormplus+without+bc5cdr_chemical", False, "dev"),
    ):
        corpora.fetch(mixture, data=str(types))
        found = [text.text for text in read_texts_jsonl(corpora.find_split(mixture, split))]
        assert (seen in " ".join(found)) == with_seen, mixture
        assert " ".join(found).count(genes) == 1, mixture


def test_a_label_that_no_training_mention_has(types):
    path = types / "CDR" / "CDR_TrainingSet.PubTator.txt"
    path.write_text(TRAIN.replace("Chemical", "Disease"))
    corpora.fetch("bc5cdr", data=str(types))
    expected = r"\[T020\] bc5cdr lists Chemical in `annotates`, but no mention of .*/train"
    with pytest.raises(BioelError, match=expected):
        corpora.convert("bc5cdr", "train")
    with pytest.raises(BioelError, match=expected):
        corpora.fetch("bc5cdr+gnormplus", data=str(types))


def test_the_first_corpus_counts_where_two_annotate_a_label():
    flu, gene = Mention(0, 3, "Disease"), Mention(4, 8, "Gene")
    both = AnnotatedText("1", "flu gene", (flu, gene), ("Disease", "Gene"))
    wide = AnnotatedText("9", "Flu  gene", (Mention(0, 9, "Disease"),), ("Disease",))
    found = list(mixtures.mixed([[wide], [both]]))
    assert [(text.mentions, text.annotates) for text in found] == [
        (wide.mentions, ("Disease",)),
        ((gene,), ("Gene",)),
    ]
    # Documents of one corpus stay, whatever their ids and texts are, and so do others of one id.
    other = AnnotatedText("1", "another", (), ("Disease",))
    assert list(mixtures.mixed([[wide, wide], [other, both]]))[:3] == [wide, wide, other]
    assert list(mixtures.mixed([[wide], [other]], left_out="aflugene.b")) == [other]


def test_sentences_of_tokens_and_articles_beside_their_mentions(tmp_path):
    sentences = [("train", ["Il", "-", "2", "of", "mice"]), ("devel", ["No", "mice"])]
    for label, file, spans in (
        ("Gene", "id_ggp", ([[0, 3]], [])),
        ("Chemical", "id_chem", ([], [])),
        ("Species", "id_species", ([[4, 5]], [[1, 2]])),
    ):
        rows = [
            {"split": split, "tokens": tokens, "label": label, "spans": of}
            for (split, tokens), of in zip(sentences, spans, strict=True)
        ]
        srsly.write_gzip_jsonl(tmp_path / f"{file}.jsonl.gz", rows)
    corpora.fetch("bionlp_id", data=str(tmp_path))
    (train,), (dev,) = (list(read_texts_jsonl(f"assets/bionlp_id/{split}.jsonl")) for split in BOTH)
    assert [(m.label, train.text[m.start : m.end]) for m in train.mentions] == [
        ("Gene", "Il - 2"),
        ("Species", "mice"),
    ]
    assert (dev.text, len(dev.mentions)) == ("No mice", 1)

    articles = [{"id": id, "text": "Foods for mice."} for id in ("7", "9")]
    srsly.write_gzip_jsonl(tmp_path / "articles.jsonl.gz", articles)
    for file, id, start, end in (
        ("PR", "PR:1", 0, 5),
        ("CHEBI", "CHEBI:33290", 0, 5),
        ("NCBITaxon", "NCBITaxon:10088", 10, 14),
    ):
        found = {"start": start, "end": end, "id": id, "parts": 1}
        rows = [{"id": "9", "mentions": [found, found | {"parts": 2}]}]
        srsly.write_gzip_jsonl(tmp_path / f"{file}.jsonl.gz", rows)
    corpora.fetch("craft", data=str(tmp_path))
    (article,) = read_texts_jsonl("assets/craft/train.jsonl")
    assert [(m.label, m.start) for m in article.mentions] == [("Gene", 0), ("Species", 10)]


def test_long_documents_are_trained_on_in_pieces():
    sentence = "Word " * 400 + "end. "
    text = AnnotatedText("1", sentence * 4 + "Flu.", (Mention(8020, 8023, "Disease"),))
    assert text.text[8020:8023] == "Flu"
    pieces = list(documents.pieces(text))
    assert [piece.id for piece in pieces] == ["1.1", "1.2", "1.3"]
    assert "".join(piece.text for piece in pieces) == text.text
    (mention,) = pieces[2].mentions
    assert pieces[2].text[mention.start : mention.end] == "Flu"
    assert [p.id for p in documents.pieces(AnnotatedText("2", "Short. Text."))] == ["2"]


@pytest.mark.parametrize(
    "entry",
    [
        {"prefix": {"Drug": "ONT"}},
        {"splits": {"train": [{"file": "a"}]}},
        {"kb": {"source": "terms.csv"}},
    ],
)
def test_an_entry_of_another_form(entry):
    splits = {"train": [{"file": "a"}], "dev": [{"file": "b"}]}
    kb = {"choices": [{"files": []}]}
    right = {"prefix": None, "label_types": {}, "splits": splits, "kb": kb}
    specs.check_entry("mine", right)
    with pytest.raises(BioelError, match=r"\[T021\] .*corpus mine"):
        specs.check_entry("mine", right | entry)


def test_a_corpus_of_ones_own(tmp_path, monkeypatch):
    """A folder of BRAT for training, a .spacy file for development."""
    (tmp_path / "data" / "my_train").mkdir(parents=True)
    (tmp_path / "data" / "my_train" / "1.txt").write_text("Aspirin and fever")
    rows = "T1\tChemical 0 7\tAspirin\nN1\tReference T1 MESH:D001241\tx\n"
    (tmp_path / "data" / "my_train" / "1.ann").write_text(rows)
    text = AnnotatedText("2", "Fever", (Mention(0, 5, "Disease", ("MESH:D005334",)),))
    docs_to_bin([text_to_doc(blank("en"), text)[0]]).to_disk(tmp_path / "data" / "my_dev.spacy")
    entry = {
        "prefix": "MESH",
        "splits": {"train": [{"file": "my_train"}], "dev": [{"file": "my_dev.spacy"}]},
        "kb": {"source": "training mentions", "choices": [{"files": []}]},
    }
    (tmp_path / "corpora.yml").write_text(json.dumps({"mine": entry}))
    monkeypatch.setattr(specs, "CORPORA", tmp_path / "corpora.yml")
    corpora.fetch("mine", data=str(tmp_path / "data"))
    for split in BOTH:
        corpora.convert("mine", split)
    corpora.kb("mine")
    found = [next(iter(read_texts(Path(f"corpus/mine/{s}.spacy")))) for s in BOTH]
    assert [one.mentions for one in found] == [
        (Mention(0, 7, "Chemical", ("MESH:D001241",)),),
        text.mentions,
    ]
    assert list(KnowledgeBase.open(Path("kb/mine")).ids) == ["MESH:D001241"]
