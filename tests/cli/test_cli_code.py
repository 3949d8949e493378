"""`--code`: functions of a user, that the config of a saved pipeline names."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import catalogue
import pytest
from tiny import blank, needs

from spacy_bioel.kb.build import build_kb
from spacy_bioel.loading import import_code, load_model
from spacy_bioel.types import Concept

ROOT = Path(__file__).parents[2]
RULES = """
import re
from dataclasses import dataclass

import spacy
from spacy_bioel.entities import EntityRules, Query


@dataclass
class Antibodies(EntityRules):
    vendor: str
    labels = ("Antibody",)
    fact_names = ("vendor", "catalogue")

    def propose(self, docs, spans):
        for doc, of_doc in zip(docs, spans):
            of_doc.add_places((m.span() for m in re.finditer(r"ab\\d+", doc.text)), "Antibody")

    def prepare(self, batch):
        return [Query.of(f"{self.vendor} {span.text}") for span in batch.spans]

    def facts(self, batch):
        return [{"vendor": self.vendor, "catalogue": span.text} for span in batch.spans]


@spacy.registry.misc("test-antibodies.v1")
def create(vendor: str):
    return Antibodies(vendor)
"""
FOUND = {
    **{"start": 9, "end": 15, "text": "ab7260", "label": "Antibody"},
    **{"id": "RRID:AB_305808", "ids": ["RRID:AB_305808"]},
    **{"vendor": "Abcam", "catalogue": "ab7260"},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with rules, a pipeline that was saved with them, and texts."""
    home = tmp_path_factory.mktemp("code")
    (home / "rules.py").write_text(RULES, encoding="utf8")
    (home / "notes.txt").write_text("Stain of ab7260.\n" * 3, encoding="utf8")
    build_kb([Concept("RRID:AB_305808", ("GFAP antibody", "Abcam ab7260"))], home / "kb")
    import_code(str(home / "rules.py"))
    nlp = blank()
    rules = {"@misc": "test-antibodies.v1", "vendor": "Abcam"}
    config = {"kb": {"Antibody": str(home / "kb")}, "entities": {"antibodies": rules}}
    nlp.add_pipe("bioel_linker", config={"mentions": "dictionary", **config})
    nlp.to_disk(home / "pipeline")
    return home


@pytest.fixture(autouse=True)
def _unknown(home, monkeypatch) -> None:
    """Forget the rules, as in a process that has not imported them."""
    name = ("spacy", "misc", "test-antibodies.v1")
    monkeypatch.setitem(catalogue.REGISTRY, name, None)  # so that it is forgotten at the end too
    del catalogue.REGISTRY[name]
    monkeypatch.delitem(sys.modules, "python_code", raising=False)


def links_of(out: str) -> list[dict[str, Any]]:
    links = [link for line in out.splitlines() for link in json.loads(line)["links"]]
    return [{key: value for key, value in x.items() if key != "candidates"} for x in links]


def test_links_have_the_facts_of_rules(bioel, home, tmp_path):
    files = [tmp_path / f"links.{suffix}" for suffix in ("jsonl", "csv", "bioc.json", "html")]
    outputs = [word for file in files for word in ("-o", file)]
    bioel("link", home / "pipeline", home / "notes.txt", "--code", home / "rules.py", *outputs)
    lines, table, bioc, page = (file.read_text("utf8") for file in files)
    assert links_of(lines) == [FOUND] * 3
    rows = list(csv.DictReader(table.splitlines()))
    assert [(row["vendor"], row["catalogue"]) for row in rows] == [("Abcam", "ab7260")] * 3
    assert '"vendor": "Abcam"' in bioc and '"vendor": "Abcam"' in page


def test_explanations(bioel, home):
    model, code = home / "pipeline", home / "rules.py"
    found = bioel("explain", model, "On ab7260.", "--code", code, "--json", "-").json
    assert found["mentions"][0]["ids"] == ["RRID:AB_305808"]


def test_pipelines_that_are_verified(bioel, home):
    assert "unchanged" in bioel("verify", home / "pipeline", "--code", home / "rules.py").words


def test_worker_processes_have_the_rules(bioel, home):
    about = [home / "pipeline", home / "notes.txt", "--code", home / "rules.py"]
    done = bioel("link", *about, "--n-process", 2, "--batch-size", 1)
    assert links_of(done.out) == [FOUND] * 3


@pytest.mark.slow
def test_spawned_worker_processes_have_the_rules(home):
    (home / "spawn.py").write_text(
        "import multiprocessing, sys\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.set_start_method('spawn')\n"
        "    from spacy_bioel.cli import main\n"
        "    main(sys.argv[1:])\n",
        encoding="utf8",
    )
    about = ["link", "pipeline", "notes.txt", "--code", "rules.py"]
    done = run(home, "spawn.py", *about, "--n-process", "2", "--batch-size", "1")
    assert links_of(done) == [FOUND] * 3


@pytest.mark.slow
def test_rules_of_a_package_need_no_option(home):
    site = home / "site"
    about = site / "my_package-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "my_package.py").write_text(RULES.replace("@spacy.registry", "# "), encoding="utf8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    entry = "[spacy_misc]\ntest-antibodies.v1 = my_package:create\n"
    (about / "entry_points.txt").write_text(entry)
    done = run(home, "-m", "spacy_bioel", "link", "pipeline", "notes.txt", path=site)
    assert links_of(done) == [FOUND] * 3


def run(home: Path, *arguments: str, path: Path = ROOT) -> str:
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(path)])}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=home, env=env, capture_output=True, encoding="utf8"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_missing_is_named(bioel, home):
    done = bioel("link", home / "pipeline", home / "notes.txt", status=2)
    assert (
        "refers to the function 'test-antibodies.v1', which is not registered in 'misc'" in done.err
    )
    assert done.err.startswith("error: [B501]") and "(--code FILE;" in done.err


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(:\n", "line 1, SyntaxError: invalid syntax."),
        ("def f():\n    return 1 / 0\n\n\nf()\n", "line 2, ZeroDivisionError: division by zero."),
        ("import no_such_module\n", "line 1, ModuleNotFoundError: No module named"),
        ("open('nowhere.csv')\n", "line 1, FileNotFoundError:"),
        (None, "there is no such file."),
    ],
)
def test_code_that_cannot_be_imported(bioel, tmp_path, code, message):
    path = tmp_path / "wrong.py"
    if code is not None:
        path.write_text(code, encoding="utf8")
    done = bioel("link", "kb", "notes.txt", "--code", path, status=2)
    assert done.err.startswith(f"error: [B502] The code in {path} cannot be imported: {message}")


@needs("service")
def test_the_service_answers_with_facts(home):
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from spacy_bioel.plugins.service import Limits
    from spacy_bioel.plugins.service.app import LinkAnswer, create_app
    from spacy_bioel.plugins.service.service import Service

    import_code(str(home / "rules.py"))
    service = Service(lambda: load_model(str(home / "pipeline")), max_characters=100)
    service.start()
    client = TestClient(create_app(service, Limits()), "http://localhost")
    service.wait()
    request = {"texts": ["Stain of ab7260."], "candidates": False}
    answer = client.post("/link", json=request).json()
    assert answer["documents"][0]["links"] == [FOUND]
    link = LinkAnswer.model_validate(answer).documents[0].links[0]
    assert link.model_extra == {"vendor": "Abcam", "catalogue": "ab7260"}
    schema = client.get("/openapi.json").json()["components"]["schemas"]["LinkOut"]
    assert schema["additionalProperties"] is True and "facts" in schema["description"]
    service.close()
