"""What services offer of the check: a route and a tool for agents."""

import pytest
from kb_files import made_kb

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.loading import dictionary_pipeline
from spacy_bioel.plugins.curation.routes import CheckRequest, check_for_agent, check_request
from spacy_bioel.types import Concept


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> KnowledgeBase:
    concepts = [Concept("X:1", ("Naloxone", "Narcan")), Concept("X:2", ("Clonidine",))]
    return made_kb(tmp_path_factory.mktemp("routes"), concepts)


def test_check(kb):
    nlp = dictionary_pipeline(str(kb.path))
    text = "Narcan (X:1).\nClonidine (X:1)"
    first, second = check_request(nlp, CheckRequest(texts=[text])).model_dump()["findings"]
    assert (first["verdict"], first["line"], first["column"]) == ("synonym", 1, 9)
    assert (second["verdict"], second["found"]["name"]) == ("other concept", "Naloxone")
    assert second["proposals"] == [{"id": "X:2", "name": "Clonidine", "score": 1.0}]
    both = check_request(nlp, CheckRequest(texts=["X:1", text])).findings
    assert [finding.text for finding in both] == [0, 1, 1]
    assert check_request(nlp, CheckRequest(texts=[""])).findings == []


def test_check_ids(kb):
    found = check_for_agent(kb, "Narcan (X:1), clonidine (X:1), X:9 and MONDO:0008541")
    assert found["checked"] == 4
    assert [(f["name"], f["id"], f["verdict"]) for f in found["findings"]] == [
        ("clonidine", "X:1", "other concept"),
        ("", "X:9", "not checked"),
        ("", "MONDO:0008541", "not checked"),
    ]
    assert found["findings"][0]["proposals"][0]["id"] == "X:2"
    assert len(check_for_agent(kb, "X:9 " * 300)["findings"]) == 200
