"""What a note says of a mention, by its cues in sentences, sections and layouts."""

import json
from pathlib import Path

import pytest
import spacy
import srsly
from tables import cases
from tiny import blank

import spacy_bioel
from spacy_bioel.doc import set_links
from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.clinical.factories import ContextSettings
from spacy_bioel.plugins.clinical.status import CONTEXT_FACT, Context
from spacy_bioel.plugins.clinical.tables import cue_tables
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import Link

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
CUES = cue_tables()["cues"]


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "assertions"))
def test_assertions(contexts, text, expected):
    assert (*(f"{c.assertion} {c.relative}".strip() for c in contexts(text)),) == expected


def flags_of(context: Context) -> str:
    """Return what is said of a mention: "negated historical" for "no history of [gout]"."""
    names = ("negated", "uncertain", "historical", "hypothetical")
    whom = context.experiencer.replace("patient", "")
    return " ".join([*(name for name in names if getattr(context, name)), whom]).strip()


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "flags"))
def test_flags(contexts, text, expected):
    assert (*map(flags_of, contexts(text)),) == expected


@pytest.mark.parametrize("name", ["assertion_lines", "structure_lines", "notes_layout"])
def test_lines_and_notes_of_benchmarks(contexts, name):
    """They were written before the rules, or a changed word used to turn the status."""
    for line in (BENCHMARKS / f"{name}.jsonl").read_text("utf8").splitlines():
        row = json.loads(line)
        text, mentions = row["text"], row.get("mentions", [])
        for words, status in row.get("expect", {}).items():
            start = text.index(words)
            mentions.append({"start": start, "end": start + len(words), "is": status})
        mentions.sort(key=lambda mention: mention["start"])
        found = contexts(text, [(m["start"], m["end"]) for m in mentions])
        assert [c.assertion for c in found] == [m["is"] for m in mentions], text


@pytest.mark.parametrize("row", CUES, ids=lambda row: f"{row['kind']}: {row['words'][0]}")
def test_the_example_and_the_counterexample_of_a_cue(contexts, row):
    plain = row.get("says", "")
    status = (row.get("negated", "negated") if plain in ("", "+") else plain).split()[0]
    assert row["reading"]
    if row["example"]:
        assert status in flags_of(*contexts(row["example"]))
    assert status not in flags_of(*contexts(row["counterexample"]))


def test_the_cues_are_few():
    words = [words for row in CUES for words in row["words"]]
    assert 280 < len(set(words)) <= len(words) <= 300


def test_doubt_is_a_status(contexts):
    (context,) = contexts("It is not that she has no [pain].")
    assert (context.assertion, context.negated, context.hypothetical) == ("unknown", None, None)
    fact = json.loads(json.dumps(context.to_fact()))
    assert fact["negated"] is None and [cue["says"] for cue in fact["cues"]] == ["unknown"]
    assert CONTEXT_FACT.columns["assertion"](fact) == "unknown"
    assert CONTEXT_FACT.css_class and CONTEXT_FACT.css_class(fact) == "other"


def test_a_sentence_without_an_end_costs_linear_time(contexts):
    assert contexts("could not be ruled out and no " * 3300 + "[fever]")[0].negated


def test_a_full_line_continues_in_the_next_one():
    text = cases(__file__, "full_line")
    starts = [text[at:].split()[0] for at in sentence_borders(text)]
    assert starts == ["-", "Short", "New", "Next."]


def test_extensions_and_cues(telling):
    doc = telling.make_doc("His mother had no asthma.")
    assert doc[4:5]._.negated is None
    doc.spans["bioel"] = [doc[4:5]]
    span = telling.get_pipe("bioel_context")(doc).spans["bioel"][0]  # type: ignore[operator]
    assert (span._.negated, span._.experiencer) == (True, "family")
    assert span._.context_cues == ("mother", "no")
    again = spacy.tokens.Doc(telling.vocab).from_bytes(doc.to_bytes())
    assert again.spans["bioel"][0]._.negated is True


def test_rules_are_saved_with_the_pipeline(contexts, tmp_path):
    cues = [{"kind": "state", "words": ["nicht da"], "says": "negated"}]
    rules = {"cues": cues, "sections": {"family": ["familie"]}}
    srsly.write_json(tmp_path / "own.json", rules)
    other = spacy.blank("en")
    other.add_pipe("bioel_context", config={"rules": str(tmp_path / "own.json")})
    other.to_disk(tmp_path / "pipeline")
    (tmp_path / "own.json").unlink()
    loaded = spacy.load(tmp_path / "pipeline")

    def found(nlp):
        return [*map(flags_of, contexts("[Fieber] nicht da.\nFamilie: [Gicht]", nlp=nlp))]

    assert found(loaded) == ["negated", "family"] == found(other)
    # A pipeline made from its config has the same rules; those named in a config take precedence.
    made = spacy.util.load_model_from_config(loaded.config)
    assert found(made) == ["negated", "family"]
    srsly.write_json(tmp_path / "new.json", rules | {"sections": {}})
    changes = {"components.bioel_context.rules": str(tmp_path / "new.json")}
    changed = spacy.load(tmp_path / "pipeline", config=changes)
    assert found(changed) == ["negated", ""]
    as_bytes = spacy.blank("en")
    as_bytes.add_pipe("bioel_context")
    assert found(as_bytes.from_bytes(other.to_bytes())) == ["negated", "family"]


@pytest.mark.parametrize(("content", "why"), cases(__file__, "broken_rules"))
def test_broken_rules(tmp_path, content, why):
    (tmp_path / "rules.json").write_text(content, "utf8")
    with pytest.raises(BioelError, match=rf"(?s)\[B490\] .*rules\.json .*{why}"):
        spacy.blank("en").add_pipe("bioel_context", config={"rules": str(tmp_path / "rules.json")})


def test_a_mention_without_a_concept_may_be_a_cue(telling):
    doc = telling.make_doc("The headache is gone.")
    links = [Link(4, 12, "D", ("X:1",)), Link(16, 20, "Chemical")]
    set_links(doc, links)
    statuses = [span._.assertion for span in telling.get_pipe("bioel_context")(doc).spans["bioel"]]
    assert statuses == ["historical", "present"]


def test_settings_of_a_saved_pipeline(tmp_path):
    nlp = blank()
    nlp.add_pipe("sentencizer")
    pipe = nlp.add_pipe("bioel_context", config={"spans_key": "mine"})
    pipe.cfg["spans_key"] = "other"  # type: ignore[attr-defined]
    nlp.to_disk(tmp_path)
    assert spacy.load(tmp_path).get_pipe("bioel_context").cfg["spans_key"] == "other"  # type: ignore[attr-defined]
    config = {"components.bioel_context.spans_key": "third"}
    changed = spacy_bioel.load(tmp_path, config=config, exclude="sentencizer")
    assert changed.pipe_names == ["bioel_context"]
    assert changed.get_pipe("bioel_context").cfg["spans_key"] == "third"  # type: ignore[attr-defined]
    assert changed.config["components"]["bioel_context"]["spans_key"] == "third"
    assert ContextSettings.defaults()["spans_key"] == ""
    path, rules = tmp_path / "config.cfg", 'rules = ""'
    written = path.read_text()
    for value, message in (
        (r'rules = "\ud800"', r"\[B270\] .*bioel_context:\nrules = .*surrogate"),
        (f"{rules}\n{rules}", r"\[B071\].*rules"),
    ):
        path.write_text(written.replace(rules, value))
        with pytest.raises(BioelError, match=message):
            spacy_bioel.load(tmp_path)
