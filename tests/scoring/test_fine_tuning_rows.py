"""The benchmark of training from the starter: what is drawn, which config, and what is resumed."""

import pytest
import srsly

from benchmarks import fine_tuning, record
from benchmarks.texts import blank
from spacy_bioel.corpus import docs_to_bin, read_texts, text_to_doc
from spacy_bioel.types import AnnotatedText, Mention


@pytest.fixture
def sizes(tmp_path, monkeypatch):
    """Run the benchmark without training. RETURNS (Callable): The sizes that were trained."""
    trained = []

    def rows(system, corpus, size, *_):
        if size == "200" and trained.count("200") == 0:
            trained.append(size)
            raise KeyboardInterrupt
        trained.append(size)
        yield {"metric": "f1", "value": 50.0, "measured": corpus}

    monkeypatch.setattr(fine_tuning, "_rows", rows)
    monkeypatch.setattr(record, "RESULTS", tmp_path)

    def run(**options):
        options = {"system": ["scratch"], "seed": [0], "size": ["50", "200"]} | options
        settings = {"start": "starter", "kb": "", "sentences": False, "forgotten": []}
        settings |= {"recorded": False, "work": tmp_path / "work"}
        fine_tuning.fine_tuning("mine", **(settings | options))
        return trained

    return run


def test_a_stopped_run_keeps_what_it_has_trained(sizes, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        sizes()
    recorded = srsly.read_json(tmp_path / "fine_tuning.json")
    assert [(row["size"], row["value"]) for row in recorded] == [("50", 50.0)]
    assert sizes(recorded=True) == ["50", "200"]  # nothing is trained
    assert sizes() == ["50", "200", "200"]
    recorded = srsly.read_json(tmp_path / "fine_tuning.json")
    assert [row["size"] for row in recorded] == ["50", "200"]


def test_drawn_documents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [AnnotatedText(str(i), f"gene{i} .", (Mention(0, 4, "Gene"),)) for i in range(60)]
    (tmp_path / "corpus" / "mine").mkdir(parents=True)
    docs = [text_to_doc(blank(), text, widen=True)[0] for text in texts]
    docs_to_bin(docs).to_disk("corpus/mine/train.spacy")
    drawn = {}
    for size, seed in (("20", 0), ("50", 0), ("50", 1), ("all", 0)):
        (folder := tmp_path / f"{size}-{seed}").mkdir()
        n = fine_tuning._draw("mine", size, seed, sentences=False, folder=folder)
        parts = [{t.text for t in read_texts(folder / f"{s}.jsonl")} for s in ("train", "dev")]
        assert not parts[0] & parts[1] and len(parts[1]) == n // 5
        drawn[size, seed] = parts[0] | parts[1]
        assert len(drawn[size, seed]) == n == (60 if size == "all" else int(size))
    assert drawn["20", 0] < drawn["50", 0] != drawn["50", 1]
    (folder := tmp_path / "sentences").mkdir()
    assert fine_tuning._draw("mine", "5", 0, sentences=True, folder=folder) == 50
    train = list(read_texts(folder / "train.jsonl"))
    assert len(train) == 1 and train[0].text.count("gene") == len(train[0].mentions) == 40


@pytest.mark.parametrize("links", [True, False])
def test_configs_of_the_systems(links):
    def config(system, size):
        return fine_tuning._config(
            system, "bionlp_cg_cells", size, start="starter", kb="kb/mine", links=links
        )

    steps = {size: config("scratch", size)["training"]["max_steps"] for size in fine_tuning.SIZES}
    assert steps == {"20": 200, "50": 200, "100": 200, "200": 600, "all": 1200}
    tuned, kept = config("fine_tuned", "20"), config("kept_alone", "20")
    assert [c["initialize"]["before_init"]["keep"] for c in (tuned, kept)] == [False, True]
    assert tuned["paths"]["start"] == "starter"
    for one in (tuned, config("scratch", "20")):
        assert ("bioel_linker" in one["components"]) == links
        assert ("bioel_linker" in one["nlp"]["pipeline"]) == links
        assert one["paths"]["kb"] == ("kb/mine" if links else None)
