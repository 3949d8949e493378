"""Small pipelines, a corpus and a file of concepts, which commands read."""

import json
from pathlib import Path

import pytest
import spacy

from spacy_bioel.cli import main
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

CONCEPTS = [
    Concept("MESH:D009270", ("Naloxone", "Narcan"), types=("D",)),
    Concept("MESH:D003000", ("Clonidine",), types=("D",)),
    Concept("MESH:D006973", ("Hypertension", "high blood pressure"), types=("C",)),
    Concept("MESH:D000001", (), replaced_by="MESH:D009270"),
]

# Four mentions: naloxone under a retired id, "blood-pressure" that the names do not have, a NIL.
PUBTATOR = """\
1|t|Naloxone and clonidine.
1|a|Narcan raises it.
1\t0\t8\tNaloxone\tChemical\tD000001
1\t13\t22\tclonidine\tChemical\tD003000
1\t24\t30\tNarcan\tChemical\tD009270

2|t|Hypertension.
2|a|Or pressure disease of rats.
2\t0\t12\tHypertension\tDisease\tD006973
2\t17\t33\tpressure disease\tDisease\tD006973
2\t37\t41\trats\tSpecies\t-1
"""


@pytest.fixture()
def concepts_file(tmp_path) -> Path:
    path = tmp_path / "concepts.jsonl"
    lines = [
        {"id": c.id, "names": c.names, "types": c.types, "replaced_by": c.replaced_by}
        for c in CONCEPTS
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf8")
    return path


@pytest.fixture()
def corpus(tmp_path) -> Path:
    path = tmp_path / "gold.txt"
    path.write_text(PUBTATOR, encoding="utf8")
    return path


@pytest.fixture(scope="session")
def by_label(tmp_path_factory) -> Path:
    """A pipeline with a knowledge base for each of two labels, whose words a ruler finds."""
    folder = tmp_path_factory.mktemp("by_label")
    build_kb(CONCEPTS, folder / "kb")
    nlp = spacy.blank("en")
    words = {"narcan": "Chemical", "hypertension": "Disease", "rats": "Species"}
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "bioel"})
    ruler.add_patterns(
        [{"label": label, "pattern": [{"LOWER": word}]} for word, label in words.items()]
    )
    kb = dict.fromkeys(("Chemical", "Disease"), str(folder / "kb"))
    nlp.add_pipe("bioel_linker", config={"kb": kb, "model": {"dim": 16}})
    nlp.to_disk(folder / "pipeline")
    return folder / "pipeline"


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A pipeline that links the names of the knowledge base wherever they occur.

    Its model is not of the size of the package's encoder, which it would take otherwise; what is
    only like a name is NIL.
    """
    folder = tmp_path_factory.mktemp("model")
    build_kb(CONCEPTS, folder / "kb")
    tokenizer = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})
    settings = {"mentions": "dictionary", "kb": str(folder / "kb"), "nil_threshold": 0.5}
    nlp.add_pipe("bioel_linker", config=settings | {"model": {"dim": 16}})
    nlp.to_disk(folder / "pipeline")
    return folder / "pipeline"


@pytest.fixture(scope="session")
def tuned_model(model, tmp_path_factory) -> Path:
    """The pipeline, tuned on the corpus."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "gold.txt").write_text(PUBTATOR, encoding="utf8")
    argv = ["tune", str(model), str(folder / "gold.txt"), str(folder / "tuned"), "--prefix", "MESH"]
    with pytest.raises(SystemExit):
        main(argv)
    return folder / "tuned"
