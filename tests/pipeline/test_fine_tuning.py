"""Training that starts from a trained pipeline: `source`, and `spacy-bioel.FineTune.v1`."""

from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import spacy
import srsly
from cases import table
from spacy.cli.debug_data import debug_data
from spacy.tokens import DocBin, Span
from spacy.training import loop
from spacy.training.initialize import init_nlp
from spacy.util import load_config, resolve_dot_names
from test_mention_detector import make_detector
from thinc.api import Config
from tiny import blank, examples, linking_nlp

from spacy_bioel.cli.corpora import convert
from spacy_bioel.errors import BioelError
from spacy_bioel.io.jsonl import read_concepts_jsonl
from spacy_bioel.kb.build import build_kb
from spacy_bioel.mentions.model import set_labels
from spacy_bioel.models.torch_io import weights_of
from spacy_bioel.plugins.evaluation.fine_tuning import choose_starts
from spacy_bioel.types import Concept

TRAINING = Path(__file__).parents[2] / "training"
CONFIG = TRAINING / "configs" / "fine_tune.cfg"
TRAIN = [
    ("Naloxone-induced hypertension after morphine.", ["Naloxone", "morphine"], ["hypertension"]),
    ("Acute kidney injury with lithium.", ["lithium"], ["Acute kidney injury"]),
    ("Dyskinesia under levodopa/carbidopa.", ["levodopa", "carbidopa"], ["Dyskinesia"]),
]
DEV = [("Seizures after morphine.", ["morphine"], ["Seizures"])]
IDS = {"naloxone": "D009270", "hypertension": "D006973", "morphine": "D009020"}


Row = tuple[str, list[str], list[str]]


def text_of(row: Row, labels: tuple[str, str]) -> dict[str, Any]:
    text, *found = row
    mentions = []
    for label, words in ((label, w) for label, of in zip(labels, found, strict=True) for w in of):
        ids = [f"MESH:{IDS[words.lower()]}"] if words.lower() in IDS else []
        place = {"start": text.index(words), "end": text.index(words) + len(words)}
        mentions += [place | {"label": label, "ids": ids}] if label else []
    return {"text": text, "mentions": mentions}


@pytest.fixture
def start(tmp_path, trained_folder) -> Callable[..., Any]:
    """Initialize a pipeline from the trained one, as `spacy train` does.

    names: Labels of chemicals and diseases in the corpus; "": not annotated.
    """

    def start(
        names=("Drug", "Disorder"), *, train=TRAIN, dev=DEV, change=None, there="", **settings: Any
    ) -> Any:
        for name, rows in {"train": train, "dev": dev}.items():
            srsly.write_jsonl(tmp_path / f"{name}.jsonl", [text_of(row, names) for row in rows])
        config = load_config(CONFIG)
        paths = {"start": str(there or trained_folder)}
        paths |= {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "dev")}
        config["paths"] |= paths
        config["training"] |= {"max_steps": 12, "eval_frequency": 6, "patience": 0}
        config["initialize"]["before_init"] |= settings
        config["training"]["optimizer"]["learn_rate"] = 0.01
        if change:
            change(config)
        return init_nlp(Config(config))

    return start


def pipes(nlp: Any) -> tuple[Any, Any]:
    return nlp.get_pipe("bioel_mentions"), nlp.get_pipe("bioel_linker")


def found_in(nlp: Any, text: str) -> set[tuple[str, str, str]]:
    doc = nlp(text)
    return {(s.text, s.label_, s.kb_id_) for s in doc.spans["bioel"]}


def examples_of(nlp: Any) -> Any:
    """The training documents as the config reads them."""
    (corpus,) = resolve_dot_names(nlp.config.interpolate(), ["corpora.train"])
    return corpus(nlp)


def trained_on(nlp: Any, folder: Path) -> Any:
    """Train as `spacy train` does. RETURNS (Language): What it has saved last."""
    folder.mkdir()
    loop.train(nlp, folder)
    return spacy.load(folder / "model-last")


def test_own_labels_start_from_those_of_the_same_meaning(start, trained, caplog):
    nlp = start()
    assert "origins" not in nlp.meta["bioel"]  # the pipeline has no name
    assert pipes(nlp)[0].labels == ("Disorder", "Drug")
    names = {"Chemical": "Drug", "Disease": "Disorder"}
    for text, *_ in [*TRAIN, *DEV]:
        before = {(words, names[label], id) for words, label, id in found_in(trained, text)}
        assert before and found_in(nlp, text) == before
    lines = [r.getMessage() for r in caplog.records if "W380" in r.getMessage()]
    assert len(lines) == 2
    assert "'Drug' starts from 'Chemical' (by name" in lines[1] and "%" in lines[1]


def test_what_starts_is_trained_and_saved(start, tmp_path):
    nlp = start(train=[*TRAIN, ("Tachypnea with Sotalol.", ["Sotalol"], ["Tachypnea"])])
    _, linker = pipes(nlp)
    fingerprint = linker.fingerprint
    saved = trained_on(nlp, tmp_path / "out")
    assert {(w, label) for w, label, _ in found_in(saved, "Tachypnea with Sotalol.")} == {
        ("Tachypnea", "Disorder"),
        ("Sotalol", "Drug"),
    }
    # The name encoder is frozen, so that vectors of a knowledge base remain valid.
    assert pipes(saved)[1].fingerprint == fingerprint
    assert saved.config["components"]["bioel_mentions"]["factory"] == "bioel_mentions"


def test_the_same_name_comes_first():
    starts = choose_starts(["Protein", "Gene"], ["Gene", "Protein"], {}, told={})
    assert {own: start.label for own, start in starts.items()} == {n: n for n in starts}


@table("what labels start from")
def test_what_labels_start_from(start, caplog, names, settings, labels, found, warning):
    nlp = start(names, **settings)
    assert pipes(nlp)[0].labels == (*labels,)
    assert {f"{words} {label}" for words, label, _ in found_in(nlp, TRAIN[0][0])} == {*found}
    assert warning in caplog.text


def test_or_kept_and_not_forgotten(start, tmp_path):
    nlp = start(("Drug", ""), keep=True)
    detector, _ = pipes(nlp)
    assert detector.labels == ("Drug", "Disease")
    assert nlp.config["corpora"]["train"]["annotates"] == ["Drug"]
    # What the pipeline finds is learned again, with its probability.
    (taught,) = (spans for text, spans in detector.taught.items() if text == TRAIN[0][0])
    assert {label for *_, label, _ in taught} == {"Disease"}
    gold, probabilities, annotated = detector._targets([next(examples_of(nlp))])
    assert annotated.all() and {*gold[:, 2]} == {0, 1}
    assert (probabilities[gold[:, 2] == 0] == 1).all()
    assert (probabilities[gold[:, 2] == 1] < 1).all()
    saved = trained_on(nlp, tmp_path / "out")
    for text, _, diseases in TRAIN:
        assert {x[0] for x in found_in(saved, text) if x[1] == "Disease"} == {*diseases}
    # Its mentions are not counted as wrong.
    assert spacy.load(tmp_path / "out" / "model-best").meta["performance"]["bioel_mention_p"] == 1


def test_documents_that_declare_their_labels_are_left_alone(start):
    declared = ["Drug", "Disorder", "Organ"]
    nlp = start(keep=True, change=lambda c: c["corpora"]["train"].update(annotates=declared))
    assert nlp.config["corpora"]["train"]["annotates"] == declared


def test_the_settings_of_labels_follow_their_names(start, trained_folder, tmp_path):
    nlp = spacy.load(trained_folder)
    detector, linker = pipes(nlp)
    detector.cfg["include"] = {"Chemical": ["levodopa/carbidopa"], "Disease": ["AKI"]}
    folder = linker.kb.path
    linker.cfg["label_types"] = {"Chemical": ["Chemical"], "Disease": ["Disease"]}
    linker.cfg["kb"] = {"Chemical": str(folder), "Disease": str(folder)}
    nlp.to_disk(tmp_path / "model")
    detector, linker = pipes(start(("Drug", ""), there=tmp_path / "model"))
    assert detector.cfg["include"] == {"Drug": ["levodopa/carbidopa"]}
    assert linker.cfg["label_types"] == {"Drug": ["Chemical"]} and list(linker.cfg["kb"]) == [
        "Drug"
    ]
    detector, linker = pipes(start(("Drug", ""), keep=True, there=tmp_path / "model"))
    assert list(linker.cfg["kb"]) == ["Drug", "Disease"]


def test_the_alias_table_grows_by_the_training_mentions(start, trained):
    before, after = pipes(trained)[1].alias_table, pipes(start())[1].alias_table
    n = before.counts["naloxone"]["MESH:D009270"]
    assert n and after.counts["naloxone"]["MESH:D009270"] == n + 1
    assert after.counts["nausea"] == before.counts["nausea"]


def test_an_own_knowledge_base(start, tmp_path):
    names = {"MESH:D009020": "morphine", "OWN:1": "naloxone", "MESH:D009270": "Narcan"}
    build_kb([Concept(id, (name,)) for id, name in names.items()], tmp_path / "kb")
    nlp = start(kb=str(tmp_path / "kb"), label_types={"Drug": ["D"]})
    _, linker = pipes(nlp)
    assert len(linker.kb) == 3 and linker.cfg["include_kb"]
    assert linker.cfg["label_types"] == {"Drug": ["D"]}
    # Ids that the knowledge base lacks would reduce the shares of those that it has.
    assert linker.alias_table.ids.keys() <= {"MESH:D009020", "MESH:D009270"}
    assert ("morphine", "Drug", "MESH:D009020") in found_in(nlp, "He took morphine.")
    build_kb([Concept("OWN:1", ("naloxone",))], tmp_path / "without")
    with pytest.raises(BioelError, match=r"\[B077\] 0 of 3 gold ids"):
        start(kb=str(tmp_path / "without"))


LIVER = [("The liver of a mouse.", ["liver"], []), ("A liver.", ["liver"], [])]
HARMED: Row = ("The liver is harmed by morphine.", ["morphine"], ["liver"])
ORGANS = {"liver": "MESH:L1", "morphine": "MESH:L2"}


@pytest.fixture
def organs(tmp_path, monkeypatch) -> str:
    """A knowledge base of organs; "liver" has its id in the corpora."""
    build_kb([Concept(id, (name,)) for name, id in ORGANS.items()], tmp_path / "organs")
    monkeypatch.setitem(IDS, "liver", "L1")
    return str(tmp_path / "organs")


def test_labels_of_a_knowledge_base_and_of_dev_that_train_lacks(start, organs, tmp_path):
    with pytest.raises(BioelError, match=r"\[B575\] --kb names the label 'Orgam'.* --kb LABEL="):
        start(("Organ", ""), train=LIVER, kb=f"Orgam={organs}")

    def rename(config: Any) -> None:
        path = tmp_path / "dev.jsonl"
        path.write_text(path.read_text().replace("Organ", "Orgam"))

    with pytest.raises(BioelError, match=r"\[B576\] .*: Orgam instead of Organ\."):
        start(("Organ", ""), train=LIVER, change=rename)


@pytest.mark.parametrize("form", [str, dict])
def test_a_knowledge_base_is_added_for_one_label(start, organs, form):
    """The others keep theirs: labels of the documents, and those that are kept."""
    kb = {"Organ": organs} if form is dict else f"Organ={organs}"
    nlp = start(("Organ", ""), train=LIVER, keep=True, kb=kb)
    detector, linker = pipes(nlp)
    assert detector.labels == ("Organ", "Chemical", "Disease")
    assert linker.cfg["kb"]["Organ"] == organs and len({*linker.cfg["kb"].values()}) == 2
    doc = nlp.make_doc("morphine and morphine")
    doc.spans["bioel"] = [Span(doc, 0, 1, "Organ"), Span(doc, 2, 3, "Chemical")]
    assert [s.kb_id_ for s in linker(doc).spans["bioel"]] == ["MESH:L2", "MESH:D009020"]
    nlp = start(("Drug", "Organ"), train=[HARMED] * 2, kb=kb)
    assert pipes(nlp)[1].cfg["kb"].keys() == {"Drug", "Organ"}


def test_a_knowledge_base_in_place_of_those_of_other_labels(start, organs, caplog):
    start(("Drug", "Organ"), train=[HARMED, *TRAIN[:1]], kb=organs)
    (message,) = (r.getMessage() for r in caplog.records if "W383" in r.getMessage())
    assert "labelled 'Drug'" in message and "--kb Drug=FOLDER" in message


def test_a_label_without_a_knowledge_base_is_not_linked(start, trained, organs, tmp_path, caplog):
    """Rather than to those of the others; but if these have its ids, it is."""

    folder = str(pipes(trained)[1].kb.path)
    pipes(trained)[1].set_kb({"Chemical": folder, "Disease": organs})
    trained.to_disk(there := tmp_path / "model")
    nlp = start(("Drug", "Organ"), train=[HARMED] * 2, keep=True, there=there)
    assert "W383" not in caplog.text and pipes(nlp)[1].cfg["label_types"] == {}
    IDS["liver"] = "L9"
    nlp = start(("Drug", "Organ"), train=[HARMED] * 2, keep=True, there=there)
    assert "labelled 'Organ' have no id in any knowledge base" in caplog.text
    assert pipes(nlp)[1].cfg["label_types"] == {"Organ": []}


def test_labels_that_are_not_known(start, caplog):
    """One known label is enough; without any, a label starts from scratch as well."""
    nlp = start(("Organ", ""), train=LIVER)
    assert pipes(nlp)[0].labels == ("Organ",)
    assert "W381" in caplog.text and "Organ = LABEL" in caplog.text
    caplog.clear()
    nlp = start(("Drug", "Organ"), train=[HARMED] * 2)
    assert pipes(nlp)[0].labels == ("Drug", "Organ")
    assert "W381" in caplog.text and "'Organ'" in caplog.text
    assert {label for _, label, _ in found_in(nlp, HARMED[0])} == {"Drug"}
    caplog.clear()
    start(("Drug", "Organ"), labels={"Organ": None}, train=[HARMED] * 2)
    assert "W381" not in caplog.text  # as told


@table("what cannot be started from")
def test_what_cannot_be_started_from(
    start, trained_folder, kb_folder, tmp_path, train, dev, settings, message
):
    settings = dict(settings)
    empty, there = settings.pop("empty", ""), settings.pop("there", "")

    def change(config: Any) -> None:
        if empty:
            DocBin().to_disk(tmp_path / "empty.spacy")
            config["paths"][empty] = str(tmp_path / "empty.spacy")
        elif there == "again":
            config["components"]["bioel_mentions"] = {"factory": "bioel_mentions"}

    if there == "untrained":
        nlp = linking_nlp(kb_folder)
        nlp.add_pipe("bioel_mentions", first=True)
        nlp.to_disk(tmp_path / there)
    elif there == "other":
        copytree(trained_folder, tmp_path / there)
        path = tmp_path / there / "config.cfg"
        path.write_text(path.read_text("utf8").replace("hidden = 32", "hidden = 48"), "utf8")
    with pytest.raises(BioelError, match=message):
        start(
            train=TRAIN[:train] if train else [(text, [], []) for text, *_ in TRAIN],
            dev=TRAIN[3 - dev :] if train > 1 and dev else TRAIN[:dev] or DEV,
            change=change,
            there=tmp_path / there if there in ("untrained", "other") else "",
            **settings,
        )


@pytest.mark.parametrize("kind", ["hidden", "linear", "bio"])
def test_rows_of_the_last_layer(kind, texts):
    detector: Any = make_detector(kind)
    data = examples(blank(), texts)
    detector.initialize(lambda: data)
    batch = detector._batch([example.predicted for example in data])
    before = detector.model.predict(batch)
    set_labels(detector.model, [1, None, 0, 1])
    after = detector.model.predict(batch)
    assert set(weights_of(detector.model.get_ref("scorer"))) and detector.model.get_dim("nO") == 4
    if kind == "bio":  # O, then B and I of each label
        np.testing.assert_allclose(after[:, 0], before[:, 0], rtol=1e-5)
        before, after = before[:, 1:].reshape(-1, 2, 2), after[:, 1:].reshape(-1, 2, 4)
    np.testing.assert_allclose(after[..., [0, 2, 3]], before[..., [1, 0, 1]], rtol=1e-5, atol=1e-5)
    assert (after[..., 1] <= -4).all()


@pytest.mark.slow
def test_spacy_debug_data_on_the_embedded_corpus(trained_folder, tmp_path, capsys):
    assets = TRAINING / "assets"
    build_kb(read_concepts_jsonl(assets / "mesh_excerpt.jsonl"), tmp_path / "kb")
    paths = {"start": str(trained_folder), "kb": str(tmp_path / "kb")}
    for split in ("train", "dev"):
        paths[split] = str(tmp_path / f"{split}.spacy")
        convert(assets / f"corpus/{split}.pubtator.txt", Path(paths[split]), prefix="MESH")
    overrides = {f"paths.{name}": path for name, path in paths.items()}
    capsys.readouterr()
    debug_data(CONFIG, config_overrides=overrides, silent=False)
    printed = capsys.readouterr().out
    assert "Components from other pipelines: bioel_mentions" in printed
    assert "70 training docs" in printed and "3 checks passed" in printed


def test_the_card_names_the_pipeline_it_started_from(start, trained_folder, tmp_path, bioel):
    source = tmp_path / "source"
    copytree(trained_folder, source)
    earlier = {"name": "en_first", "version": "2", "license": "CC0", "sources": []}
    sources = [{"name": "Letters", "license": "CC BY 4.0"}, {"name": "A | B"}]
    about = {"name": "mini", "version": "1.2", "license": "MIT", "sources": sources}
    meta = srsly.read_json(source / "meta.json") | about | {"bioel": {"origins": [earlier]}}
    srsly.write_json(source / "meta.json", meta)
    nlp = start(there=source)
    nlp.meta["training_steps"] = 12
    nlp.to_disk(model := tmp_path / "model")
    gold, scores = tmp_path / "dev.jsonl", tmp_path / "scores.json"
    bioel("evaluate", model, gold, "--json", scores)
    bioel("card", model, scores, "--corpus", "Mine", "--licence", "CC BY-SA 4.0")
    card = (model / "README.md").read_text("utf8")
    assert r"| started from | en_first 2, en_mini 1.2 (made from Letters; A \| B) |" in card
    assert "| labels started from | Disorder: Disease, Drug: Chemical |" in card
    licences = "Mine: CC BY-SA 4.0", "en_first 2: CC0", "en_mini 1.2: MIT", "Letters: CC BY 4.0"
    assert all(f"{licence};" in card for licence in licences)
    assert "12 updates, seed 0." in card and "${" not in card
    again = [source["name"] for source in srsly.read_json(model / "meta.json")["sources"]]
    assert again[0] == "Mine" and again[-4:] == ["en_first 2", "en_mini 1.2", "Letters", "A | B"]
