"""Context of mentions: cues, scopes, sentences and sections."""

import pytest
import spacy
import srsly
from spacy.language import Language
from spacy.tokens import SpanGroup

from spacy_bioel.doc import get_links, set_links
from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.clinical.status import Context
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import Link


@pytest.fixture(scope="module")
def nlp() -> Language:
    tokenizer = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})
    nlp.add_pipe("bioel_context")
    return nlp


def contexts_of(nlp: Language, text: str) -> list[str]:
    """Return the context of each mention in brackets: "negated" for "no [fever]"."""
    places, plain = [], ""
    for piece in text.split("]"):
        before, _, mention = piece.partition("[")
        plain += before
        if mention:
            places.append((len(plain), len(plain) + len(mention)))
            plain += mention
    doc = nlp.make_doc(plain.replace("{", "[").replace("}", "]"))
    spans = [doc.char_span(*place) for place in places]
    doc.spans["bioel"] = SpanGroup(doc, name="bioel", spans=spans)
    doc = nlp.get_pipe("bioel_context")(doc)  # type: ignore[operator]
    found = []
    for link in get_links(doc):
        said = Context.of(link)
        assert said is not None
        flags = [f for f in ("negated", "uncertain", "historical", "hypothetical")
                 if getattr(said, f)]  # fmt: skip
        found.append(" ".join([*flags, *([said.experiencer] * (said.experiencer != "patient"))]))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No [fever], [chills] or [cough].", ["negated"] * 3),
        ("Her mother, who has [migraine], says he has [asthma].", ["family", ""]),
        ("Mother denies [fever]. Parents report [cough].", ["negated", ""]),
        ("Mother has noticed [seizures]. Mother has [asthma].", ["", "family"]),
        ("Wife reports [vomiting]. Wife has [asthma].", ["", "other"]),
        ("No [fever] but [cough].", ["negated", ""]),
        ("[Pneumonia] was ruled out; [asthma] is treated.", ["negated", ""]),
        ("No increase in [edema].", [""]),
        ("No [fever] at 37.5 C. [Ataxia] noted.", ["negated", ""]),
        ("Denies N/V. [Ataxia] b.i.d. [Cough] persists.", ["", ""]),
        ("No [cough] (nor cold). [Ataxia] persists.", ["negated", ""]),
        ("No [cough] seen by Dr. J. Smith.", ["negated"]),
        ("Not able to rule out [ataxia].", ["uncertain"]),
        ("[Ataxia] not ruled out.", ["uncertain"]),
        ("[Strabismus] (-).", ["negated"]),
        ("[Pneumonia] cannot be excluded.", ["uncertain"]),
        ("Possible [pneumonia], no [effusion].", ["uncertain", "negated"]),
        ("No history of [asthma].", ["negated historical"]),
        ("Two-day history of [cough].", [""]),
        ("Return if [seizures] occur.", ["hypothetical"]),
        ("Her father had [gout].", ["family"]),
        ("[Gout] runs in the family.", ["family"]),
        ("Her father had gout, but the patient has [asthma].", [""]),
        ("Denies [chest pain] or\n[dyspnea] at rest.", ["negated", "negated"]),
        ("DENIES [CHEST PAIN].", ["negated"]),
        ("Seen by Dr. Lee without [fever].", ["negated"]),
        ("[Asthma]\tyes\n[Seizures]\tdenies\n[Gout]\tyes", ["", "negated", ""]),
        ("| [Fever] | no |\n| [Cough] | yes |", ["negated", ""]),
        ("", []),
        # Answers.
        ("[Fever]: no. [Cough]: yes. [Diarrhea] - denies.", ["negated", "", "negated"]),
        ("[Fever], [chills]: none. [Cough]: absent.", ["negated"] * 3),
        ("HPI: [fever] since May, [cough]: none", ["", "negated"]),
        ("[Seizures]: none since 2019. [LOC]: negative.", ["negated", "negated"]),
        ("[Chest pain] on exertion: denies, [cough]: yes", ["negated", ""]),
        ("| [Fever] | no |\n| [Cough] | yes |", ["negated", ""]),
        ("No [rash]\tyesterday\n[Chills]\ttoday\n", ["negated", ""]),
        ("[Fever]\tno\n[Edema] (none), [rash] (yes)", ["negated", "negated", ""]),
        ("[Hip]: no [fever]", ["", "negated"]),
        ("Hips [pain]: no\n[swelling] was seen.", ["", "negated"]),  # a wrapped line
        ("[Pneumonia] - no organism. [Cough] - no better.", ["", ""]),
        ("[Cough]: negative for [fever]", ["", "negated"]),
        # Signs.
        ("(-) [stiffness], (-) [fever], (+) [cough]", ["negated", "negated", ""]),
        ("[Tremor] (-), [ataxia] (+), [rash] (-).", ["negated", "", "negated"]),
        ("ROS (-) [fever] (+) [cough] (-) [rash]", ["negated", "", "negated"]),
        ("neg [cough], pos [sputum], strep neg", ["negated", ""]),
        ("CXR neg, [pneumonia] possible; negative pressure, [wound]", ["uncertain", ""]),
        ("+ [fatigue], - [loss] -[sweats]", ["", "negated", "negated"]),
        ("No [rash], -[fever]", ["negated", "negated"]),
        ("-[fever]\n- [cough]", ["", ""]),  # items of a list
        ("{ } [pain]  {x} [ache]", ["negated", ""]),
        ("{ } scan for [stroke]", [""]),  # to be done
        ("Two +/- [fever], 3+ [edema]", ["", ""]),
        # Cues.
        ("No longer [dizzy]. No longer taking aspirin for [ache].", ["historical", ""]),
        ("Unlikely to be [pneumonia]. Doubt [SAH].", ["uncertain", "uncertain"]),
        ("Fear of [cancer]. Check K for [hyperkalemia].", ["hypothetical"] * 2),
        ("Side effects: [nausea], [rash].", ["hypothetical"] * 2),
        ("Stopped because of side effects: [nausea].", [""]),
        ("[Pneumonia], on [DVT] prophylaxis. [Seizure] precautions.", ["", *["hypothetical"] * 2]),
        ("No change in [tremor], no improvement in [rash].", ["", ""]),
        ("Without worsening of [edema].", [""]),
        ("No [headaches] or [seizures], [fever] present.", ["negated", "negated", ""]),
        ("No [fever], [chills] or [cough] noted.", ["negated"] * 3),
    ],
)
def test_cues(nlp, text, expected):
    assert contexts_of(nlp, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Family history: [gout]\nExam: [edema]", ["family", ""]),
        ("PMH: [asthma].\nShe has [cough].", ["historical", ""]),
        ("PMH: [asthma]. No [pain] today. [Gout].", ["historical", "negated", "historical"]),
        ("PMH:\n- [asthma]\n- [gout]\n\nPLAN:\n[edema]", ["historical", "historical", ""]),
        ("FHx: noncontributory. Denies [fever]. Has [asthma].", ["negated", ""]),
        ("FHx: none. [Rash] today.", [""]),
        ("Family history: [gout]. Father had [MI]. Patient has [migraine].", ["family"] * 2 + [""]),
        ("PMH: [asthma]. [Gout]. She has [cough].", ["historical"] * 2 + [""]),
        ("PMH: as follows\n1. [asthma]\n2. [gout]\nHPI: [cough]", ["historical"] * 2 + [""]),
    ],
)
def test_sections(nlp, text, expected):
    assert contexts_of(nlp, text) == expected


def test_a_full_line_continues_in_the_next_one():
    text = (
        "He has had cough for three days and denies any history of\n"
        "COPD or heart failure in the past or at any time before.\n"
        "- item\n"
        "Short line\n"
        "New line. Next."
    )
    starts = [text[at:].split()[0] for at in sentence_borders(text)]
    assert starts == ["-", "Short", "New", "Next."]


def test_extensions_and_cues(nlp):
    doc = nlp.make_doc("His mother had no asthma.")
    assert doc[4:5]._.negated is None
    doc.spans["bioel"] = [doc[4:5]]
    span = nlp.get_pipe("bioel_context")(doc).spans["bioel"][0]  # type: ignore[operator]
    assert (span._.negated, span._.experiencer) == (True, "family")
    assert span._.context_cues == ("mother", "no")
    again = spacy.tokens.Doc(nlp.vocab).from_bytes(doc.to_bytes())
    assert again.spans["bioel"][0]._.negated is True


def test_rules_are_saved_with_the_pipeline(nlp, tmp_path):
    cues = [{"kind": "state", "words": ["nicht da"], "says": "negated"}]
    rules = {"cues": cues, "sections": {"family": ["familie"]}}
    srsly.write_json(tmp_path / "own.json", rules)
    other = spacy.blank("en")
    other.add_pipe("bioel_context", config={"rules": str(tmp_path / "own.json")})
    other.to_disk(tmp_path / "pipeline")
    (tmp_path / "own.json").unlink()
    loaded = spacy.load(tmp_path / "pipeline")
    text = "[Fieber] nicht da.\nFamilie: [Gicht]"
    assert contexts_of(loaded, text) == ["negated", "family"] == contexts_of(other, text)
    # A pipeline made from its config has the same rules; those named in a config take precedence.
    made = spacy.util.load_model_from_config(loaded.config)
    assert contexts_of(made, text) == ["negated", "family"]
    srsly.write_json(tmp_path / "new.json", rules | {"sections": {}})
    changes = {"components.bioel_context.rules": str(tmp_path / "new.json")}
    changed = spacy.load(tmp_path / "pipeline", config=changes)
    assert contexts_of(changed, text) == ["negated", ""]
    as_bytes = spacy.blank("en")
    as_bytes.add_pipe("bioel_context")
    assert contexts_of(as_bytes.from_bytes(other.to_bytes()), text) == ["negated", "family"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[]", "list indices"),
        ("{}", "'cues'"),
        ('{"cues": {"negated": {"forward": []}}}', "no longer read"),
        ('{"cues": [{"kind": "noun", "words": []}]}', "'noun' is not one of verb, object"),
        ('{"cues": [{"kind": "verb", "words": ["deny"], "says": "no"}]}', "'no' is not one of neg"),
        ('{"cues": [{"kind": "verb", "words": "deny"}]}', "expected a list of phrases, found 'd"),
        ('{"cues": [], "sections": {"past": ["pmh"]}}', "'past' is not one of"),
        ('{"cues": [], "answers": {"no": ["no"]}}', "'no' is not one of negated, uncertain"),
    ],
)
def test_broken_rules(tmp_path, content, why):
    (tmp_path / "rules.json").write_text(content, "utf8")
    with pytest.raises(BioelError, match=rf"(?s)\[B490\] .*rules\.json .*{why}"):
        spacy.blank("en").add_pipe("bioel_context", config={"rules": str(tmp_path / "rules.json")})


def test_a_mention_without_a_concept_may_be_a_cue(nlp):
    doc = nlp.make_doc("The headache is gone.")
    links = [Link(4, 12, "D", ("X:1",)), Link(16, 20, "Chemical")]
    set_links(doc, links)
    statuses = [span._.assertion for span in nlp.get_pipe("bioel_context")(doc).spans["bioel"]]
    assert statuses == ["historical", "present"]
