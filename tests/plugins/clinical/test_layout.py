"""The layout of notes, and statuses that follow it."""

import json
import random
from pathlib import Path

import pytest
import spacy
from spacy.language import Language

from spacy_bioel.doc import get_links
from spacy_bioel.plugins.clinical.layout import Node, read_layout, units_of
from spacy_bioel.plugins.clinical.status import Context

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def outline(text: str) -> list[str]:
    """Return the kinds of the nodes in a text with their words, the inner ones indented."""

    def lines(node: Node, depth: int) -> list[str]:
        words = " ".join(text[node.start : node.end].split())
        below = [line for part in node.parts for line in lines(part, depth + 1)]
        return [f"{' ' * depth}{node.kind}: {words}", *below]

    return [line for part in read_layout(text).parts for line in lines(part, 0)]


def kinds(text: str, kind: str) -> list[str]:
    return [text[n.start : n.end] for n in read_layout(text) if n.kind == kind]


def heads(text: str) -> list[str]:
    """Return the heads of sections, lists and keys in a text."""
    nodes = (node for node in read_layout(text) if node.kind in ("section", "list", "pair"))
    return [text[slice(*node.head)] for node in nodes if node.head[0] < node.head[1]]


def test_a_list_with_a_head_ends_at_a_line_that_is_not_an_item():
    assert outline("Denies:\n- fever\n  and chills\n- cough\nSeen today.") == [
        "list: Denies: - fever and chills - cough",
        " sentence: Denies:",
        " item: - fever and chills",
        "  sentence: fever and chills",
        " item: - cough",
        "  sentence: cough",
        "paragraph: Seen today.",
        " sentence: Seen today.",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Denies:\n* fever\n* cough\n\nRash.", ["* fever", "* cough"]),
        ("1. gout\n   a) left\n   b) right\n2) asthma", ["a) left", "b) right", "2) asthma"]),
        ("(1) gout\n(2) asthma", ["(1) gout", "(2) asthma"]),
        ("\t- gout\r\n\t- asthma\r\n", ["- gout", "- asthma"]),
        ("-3 SD\n2.5 mg\n-ve for rash", []),
    ],
)
def test_items(text, expected):
    assert set(expected) <= set(kinds(text, "item"))
    assert bool(expected) == bool(kinds(text, "item"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FAMILY HISTORY\nFather: gout\n\nPLAN\nRest.", ["FAMILY HISTORY", "Father", "PLAN"]),
        ("Past history\nGout.\n\nSocial history:\nWorks.", ["Past history", "Social history"]),
        ("PMH: gout. Allergies: none", ["PMH", "Allergies"]),
        ("Not present:\n  ptosis\n  gout", ["Not present"]),
        ("Motor\n    ataxia\n    tremor", ["Motor"]),
        ("Fever = no", ["Fever"]),
        ("DIAGNOSIS:  1) gout    PLAN:  rest", ["DIAGNOSIS", "PLAN"]),
        ("He has gout.\nHe has asthma.", []),
        ("See http://x.org at 10:30.", []),
    ],
)
def test_heads(text, expected):
    assert heads(text) == expected


@pytest.mark.parametrize(
    ("text", "rows", "has_header"),
    [
        ("Sign | Left\nPtosis | yes", [["Sign", "Left"], ["Ptosis", "yes"]], True),
        ("| a |  | c |\n|---|---|---|\n| d | e | f |", [["a", "", "c"], ["d", "e", "f"]], True),
        ("Gout\tyes\nRash\tno", [["Gout", "yes"], ["Rash", "no"]], False),
        ("Item     Yes   No\nGout           x", [["Item", "Yes", "No"], ["Gout", "x"]], True),
        (
            "Gout | yes | \nRash | no | x | y",
            [["Gout", "yes"], ["Rash", "no", "x", "y"]],
            False,
        ),
    ],
)
def test_tables(text, rows, has_header):
    (table,) = (node for node in read_layout(text) if node.kind == "table")
    assert [[text[slice(*cell.span)] for cell in row.parts] for row in table.parts] == rows
    assert (table.head[0] < table.head[1]) == has_header


def test_a_cell_between_gaps_belongs_to_the_column_above_it():
    text = "Item     Yes   No\nGout           x\nRash      x"
    (table,) = (node for node in read_layout(text) if node.kind == "table")
    assert [cell.column for row in table.parts[1:] for cell in row.parts] == [0, 2, 0, 1]


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("ataxia\ntremor\nptosis", 3),
        ("ataxia -\ntremor +", 2),
        ("mild ataxia\nsevere tremor", 2),
        ("He has severe\nataxia", 1),
        ("noted: ataxia,\ntremor", 1),
        ("fever\nand chills", 1),
        ("a disorder of the\nnerves", 1),
    ],
)
def test_short_lines_in_lower_case_are_items_of_a_list(text, n):
    assert len(kinds(text, "paragraph")) == n


def test_boxes_questions_and_wrapped_lines():
    assert kinds("[x] fever [ ] cough", "box") == ["[x] fever ", "[ ] cough"]
    assert kinds("Skin: rash [x]  itch [ ]", "box") == [" rash [x]", "  itch [ ]"]
    assert kinds("Any fever? No. Pain? Yes.", "question") == ["Any fever? ", "Pain? "]
    assert kinds("Dx: ? gout", "question") == []
    wrapped = "She has had severe headaches for three\nweeks, and no nausea."
    assert kinds(wrapped, "sentence") == [wrapped]
    assert kinds("[1] and (x 3 days)", "box") == []


@pytest.mark.parametrize("seed", range(20))
def test_nodes_lie_inside_their_parents_in_order(seed):
    rng = random.Random(seed)
    pieces = [
        "- ",
        "1. ",
        "\n",
        "\n\n",
        "  ",
        "\t",
        " | ",
        "Gout",
        "fever",
        ": ",
        "? ",
        ". ",
        "[x] ",
    ]
    pieces += ["[ ]", "\r\n", "\f", "PMH", "no", "-\n", "---|---\n", "    a) ", "", "é"]
    text = "".join(rng.choice(pieces) for _ in range(400))
    for node in read_layout(text):
        end = node.start
        for part in node.parts:
            assert end <= part.start <= part.end <= node.end
            end = part.end


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n\f\n",
        "no gout, " * 22_000,  # one line of 198,000 characters
        "\n".join("  " * (n % 60) + "- item" for n in range(10_000)),  # 60 levels
        "- " * 10_000,
        "No signs of:\n" + "- rash\n" * 10_000,
        "a | b\nc\nd | e | f | g\n| |\n|",
        "Sign | Yes | No\nRash | x\nGout | | x | | |\n | | |\n",
        "a\tb\n\tc\nd\t\t\te\n",
        "- \n-\n--\n1.\n[ ]\n?\n:\n=\n\t\t\n",
        "\t - fever\r\n \t- cough\r\n",
        "Denies:\r\n- rash\r\n\f- pain\f\f\r\n\x0b\x1c\u2028\x85",
    ],
)
def test_bad_layout_is_plain_text(text, nlp):
    text += "\n\n\nThe foot shows "
    layout = read_layout(text)
    assert layout.end == len(text)
    assert max(len(list(layout.path(start))) for start in units_of(text)) <= 50
    assert statuses(nlp, f"{text}[gout].")[-1] == "present"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No signs of:\n" + "- rash\n" * 9_999 + "- [gout]", "absent"),
        (
            "No signs of:\n"
            + "\n".join("  " * (n % 60) + "- x" for n in range(10_000))
            + "\n- [gout]",
            "absent",
        ),
        ("Sign | Yes | No\n[Rash] | x\n[Gout] | | x | | |\n[Itch]", "present absent present"),
        (
            "Denies:\r\n\t- [rash]\r\n        - [gout]\r\n\r\nHas [pain].\r\n",
            "absent absent present",
        ),
        ("Denies [rash].\fHas [pain].\n\fPMH:\n[gout]", "absent present historical"),
        ("He is well and active, " * 9_000 + "no [rash], has [pain]", "absent present"),
    ],
    ids=["long list", "levels", "ragged", "tabs and spaces", "form feeds", "long line"],
)
def test_right_in_spite_of_bad_layout(nlp, text, expected):
    assert statuses(nlp, text) == expected.split()


@pytest.fixture(scope="module")
def nlp() -> Language:
    tokenizer = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})
    nlp.add_pipe("bioel_context")
    return nlp


def contexts(nlp: Language, text: str, places: list[tuple[int, int]]) -> list[Context]:
    doc = nlp.make_doc(text)
    doc.spans["bioel"] = [doc.char_span(*place, alignment_mode="expand") for place in places]
    found = [Context.of(link) for link in get_links(nlp.get_pipe("bioel_context")(doc))]  # type: ignore[operator]
    return [context for context in found if context is not None]


def statuses(nlp: Language, text: str) -> list[str]:
    """Return the assertion of each finding in brackets, and the relative: "family mother"."""
    places, plain = [], ""
    for piece in text.replace("[ ]", "{ }").replace("[x]", "{x}").split("]"):
        before, _, finding = piece.partition("[")
        plain += before
        if finding:
            places.append((len(plain), len(plain) + len(finding)))
            plain += finding
    found = contexts(nlp, plain.replace("{", "[").replace("}", "]"), places)
    return [f"{context.assertion} {context.relative}".strip() for context in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Heads of lists, keys and columns.
        ("Denies:\n- [fever]\n- [cough]\nReports:\n- [rash]", "absent absent present"),
        ("No evidence of the following:\n\n1. [anemia]\n2. [sepsis]", "absent absent"),
        ("Pertinent negatives: [fever], [cough].", "absent absent"),
        ("No complaints of:\n* [pain]\n\nPlan: rest. [Rash] seen.", "absent present"),
        ("All of these are present:\n- [gout]\n- no [rash]", "present absent"),
        ("None of the drugs helped:\n- [gout]", "present"),
        ("Past:\n  a. [gout]\n  b. [asthma]", "historical historical"),
        ("Come back for any of these:\n- [pain]", "conditional"),
        ("Mother: [asthma], no [gout]", "family mother|absent mother"),
        ("Present | Absent\n[gout] | [rash]", "present absent"),
        ("Patient\tAunt\n[gout]\t[asthma]", "present|family aunt"),
        ("Who | What\nFather | [gout]\nPatient | [rash]", "family father|present"),
        # Answers in tables.
        ("Symptoms | Yes | No\n[Gout] | x | \n[Rash] | | x", "present absent"),
        ("Sign | Case | Son\n[Gout] | no | yes\n[Rash] | | yes", "absent|family son"),
        ("Test\tResult\n[Proteinuria]\tneg\n[Hematuria]\tpos", "absent present"),
        ("Item    Yes   No\n[Gout]      x\n[Rash]         x", "present absent"),
        ("Sign | Left | Right\n[Ptosis] | - | +\n[Gout] | - | -", "present absent"),
        ("[Gout] | grade 2 | -\n[Rash] | none | mild", "present absent"),
        ("Drug | For | Stopped\naspirin | [stroke] | no", "present"),
        # Answers, boxes and signs.
        ("[Fever]? no\n[Rash]? yes", "absent present"),
        ("Is he well? No. [Cough] at night.", "present"),
        ("[Fever] = Y; [rash] = N", "present absent"),
        ("[Asthma]: resolved in 2010\n[Lupus]: possible", "historical possible"),
        ("[x] [fever] [ ] [cough]\n[Rash] [x]  [itch] [ ]", "present absent present absent"),
        ("[Snoring]  [ ] yes  [x] no", "absent"),
        ("To do:\n[ ] scan for [stroke]\n[x] call", "present"),
        ("[Scoliosis] - mild. [Murmur] ++", "present present"),
        ("[Cough] +, [fever] -, [rash] -", "present absent absent"),
        # Cues in sentences.
        ("[Fever] absent, [rash] present", "absent present"),
        ("[Rash] is present although [fever] is not.", "present absent"),
        ("He is negative for [gout] and free of [pain].", "absent absent"),
        ("[Seizure]-free, and [pain] free.", "absent absent"),
        ("[Rash], ?[gout], ? [lupus].", "present possible possible"),
        ("?2019 onset of [gout]", "present"),
        ("[Gout] seems unlikely. [Rash] is unlikely to improve.", "possible present"),
        ("The scan does not allow us to exclude [stroke].", "possible"),
        ("[Stroke] could not be ruled out.", "possible"),
        ("If [fever], [rash] or [pain], call.", "conditional conditional conditional"),
        ("If the [fever] does not settle, give a drug for [pain].", "conditional present"),
        ("[Rash] resolved. [Fever] has not resolved.", "historical present"),
        ("No family history of [stroke].", "absent"),
        ("No one in the family has [gout].", "absent"),
        ("Her father reports that she has [pain].", "present"),
        ("Mum has [gout], dad had [stroke].", "family mother|family father"),
        ("His colleague has [flu].", "other"),
        # Lines.
        ("It was nega-\ntive for [gout].", "absent"),
        ("He is free\nof [pain].", "absent"),
        ("[Fever]: no\r\n\r\nHistory of [stroke].", "absent historical"),
        ("Negative for:\n- [fever]\n\n[Rash] seen.", "absent present"),
        # Terse sentences.
        ("No [fever]. pt has [gout].", "absent present"),
        ("No [fever]. h/o [asthma]. denies [pain].", "absent historical absent"),
        ("Denies [fever]. c/o [rash].", "absent present"),
        ("Mother has [migraine]. pt with [gout].", "family mother|present"),
        ("Possible [lupus]. [rash] present.", "possible present"),
        ("No [fever].[Gout] since May.", "absent present"),
        ("No resp. [infection] or temp. [rise].", "absent absent"),
        # Lines that are long, but not wrapped.
        (
            "HEENT: [goitre], [ptosis], [low-set ears], [long face]; no [cleft palate]\n"
            "Chest - [pectus excavatum], [scoliosis]\n[Kyphosis], [gout]",
            "present present present present absent present present present present",
        ),
        (
            "Ears: [low-set ears], [ptosis], [long face] and [flat nose]; no [cleft palate]\n"
            "[Pectus excavatum], [gout].",
            "present present present present absent present present",
        ),
        # Headers in Markdown.
        ("**Denies:**\n* [fever]\n* [cough]\n\n[Rash].", "absent absent present"),
        ("*Denies*\n- [fever]\n- [cough]", "absent absent"),
        ("### Pertinent negatives\n- [fever]", "absent"),
        ("**Family history**\n- [migraine]\n\n## Exam\n- [ptosis]", "family|present"),
        ("# Denies\n[fever]", "absent"),
        ("**Denies:** [fever]\n\n*[Gout]* since May.", "absent present"),
        # Answers that say nothing.
        ("[Scoliosis]: unknown\n[Ptosis]: not assessed\n[Gout]: no", "possible possible absent"),
        ("Unknown:\n- [dural ectasia]\nPresent:\n- [ptosis]", "possible present"),
        ("Sign | Case\n[Gout] | ✗\n[Rash] | ✓\n[Ptosis] | not tested", "absent present possible"),
        # Relatives who report.
        ("Parents have not noticed any [hearing loss].", "absent"),
        ("Mother did not report [fever]; father has [gout].", "absent|family father"),
        # A section of one letter.
        (
            "FHx:\n - mother: [migraine]\n\nO: Afebrile. [Gait ataxia] noted.",
            "family mother|present",
        ),
        # Answers before slashes and bars.
        ("[Fever]? no / [Rash]? yes", "absent present"),
        ("[Fever]: no / [Rash]: yes / [Cough]: no", "absent present absent"),
        ("[Fever]: N | [Rash]: Y | [Cough]: N", "absent present absent"),
        ("[Cough]: no / [Vomiting]: yes", "absent present"),
        # Comments in cells and headers.
        ("Sign | Case\n[Gout] | 0\n[Rash] | 1\n[Ptosis] | 1", "absent present present"),
        ("Sign | Case | Father\n[Gout] | n/a | yes\n[Rash] | yes | n/a", "family father|present"),
        (
            "Finding | Proband (II-1) | Mother (I-2)\n[Gout] | - | +\n[Rash] | + | -\n"
            "[Ptosis] | + | +",
            "absent|present|present",
        ),
        (
            "Finding | Index case | Sib (II-2)\n[Gout] | no | yes\n[Rash] | yes | no",
            "absent|present",
        ),
        ("Finding | Mother (age 40)\n[Gout] | yes\n[Rash] | no", "family mother|absent mother"),
        (
            "[Scoliosis] | - (normal exam)\n[Gout] | + (left toe)\n[Rash] | yes, mild",
            "absent present present",
        ),
        (
            "Finding | Case\n[Scoliosis] | - (normal exam)\n[Gout] | + (left toe)\n"
            "[Rash] | no (resolved before)",
            "absent present absent",
        ),
        # Persons in the rows of a table.
        ("Who | [Ptosis] | [Gout]\nProband | yes | no\nMother | no | yes", "present absent"),
        ("Individual\t[Ataxia]\t[Tremor]\nPatient\t-\t+\nFather\t+\t-", "absent present"),
        (
            "Person | [Ptosis] | [Gout]\nMother | no | yes\nFather | no | yes",
            "absent mother|family mother",
        ),
        # Tables of relatives.
        (
            "Finding | Mother | Father\n[Ptosis] | yes | -\n[Gout] | - | yes\n[Rash] | - | -",
            "family mother|family father|absent mother",
        ),
        # Uneven indentation.
        (
            "Denies:\n  [fever]\n [cough]\n   [vomiting]\nHas [rash].",
            "absent absent absent present",
        ),
        (
            "Denies\n   - [fever]\n  - [cough]\n    - [vomiting]\n\nHas [rash].",
            "absent absent absent present",
        ),
        ("No evidence of:\n    [gout]\n  [lupus]\n\n[Rash] present.", "absent absent present"),
        # Answers in words, and on the next line.
        ("[Seizures]? 2 this week", "present"),
        ("[Seizures]? three this month. [Rash]? no", "present absent"),
        ("[Ataxia]? mild", "present"),
        ("[Ataxia]? severe, since May\n[Tremor]? slight", "present present"),
        ("[Fever]? -", "absent"),
        ("[Fever]? -\n[Rash]? +", "absent present"),
        ("[Fever]?\n no", "absent"),
        ("[Fever]?\n  No.\n[Rash]?\n  Yes.", "absent present"),
        ("Q: [Fever]? A: no", "absent"),
        ("Q: Any [fever]?\nA: No.\nQ: Any [rash]?\nA: Yes, on the arm.", "absent present"),
        ("Any [vomiting]? Never. [Headaches]? Daily.", "absent present"),
        ("[Fever]? not anymore", "historical"),
        # Signs at the ends of lines.
        ("[Scoliosis] -\n[Ptosis] +", "absent present"),
        ("[Ataxia] +\n[tremor] -", "present absent"),
        ("[Ataxia] (+)\n[tremor] (-)", "present absent"),
        # Cues within lists and sentences.
        ("He used to have [asthma].", "historical"),
        ("She previously had [gout], now has [rash].", "historical present"),
        (
            "Denies:\n1. [fever]\n2. [cough]\n3. [vomiting] but has [nausea]",
            "absent absent absent present",
        ),
        ("Denies: [fever], [cough] but has [nausea]", "absent absent present"),
        ("Denies:\n- [fever]\n- [cough], but [nausea] present", "absent absent present"),
        (
            "[Hearing loss] and [ptosis] are present; [retinitis pigmentosa] was excluded by ERG.",
            "present present absent",
        ),
        ("She has [hearing loss]. [Retinitis pigmentosa] was excluded by ERG.", "present absent"),
        (
            "She has [hearing loss], and [retinitis pigmentosa] was excluded by ERG.",
            "present absent",
        ),
        ("[Gout] excluded by biopsy. [Lupus] ruled out by serology", "absent absent"),
        # Cues within the names of findings, and before a noun.
        ("She has [absent speech] and [seizures].", "present present"),
        ("[Hypotonia] with [absent reflexes].", "present present"),
        ("[Microcephaly], [absent thumbs], [short stature].", "present present present"),
        ("[Ptosis], [corpus callosum absent], [seizures].", "present present present"),
        ("[Lack of speech] with [ataxia].", "present present"),
        ("No [absence seizures] or [ptosis].", "absent absent"),
        ("Marked [hypotonia], reflexes absent.", "present"),
        ("[Ptosis] on the left, right kidney absent.", "present"),
        ("[Hypotonia] with absent reflexes.", "present"),
        # Cues after the last item of a list.
        (
            "[Tachycardia] 124/min, [edema] to the knees, [cyanosis] absent, [ascites] "
            "not detectable, [hepatomegaly] 2 cm.",
            "present present absent absent present",
        ),
        ("[Tremor] (right > left), [dysmetria] absent, [ataxia] present", "present absent present"),
        ("Severe [dysarthria], [dysphagia] absent.", "present absent"),
        ("[Fever], source not found.", "present"),
        ("[Arthritis] (RF negative), [rash] (ANA neg)", "present present"),
        (
            "Moderate [mitral regurgitation], no [effusion], [thrombus] could not be excluded.",
            "present absent possible",
        ),
        ("[Fever] and [cough] absent.", "absent absent"),
        ("[Fever], [chills] and [cough] were absent.", "absent absent absent"),
        ("[Fever], [chills], and [cough] were denied.", "absent absent absent"),
        ("[Fever] absent throughout, [cough] absent.", "absent absent"),
        ("[Gout] or [lupus] could not be excluded.", "possible possible"),
        # Items after "no" that are affirmed.
        ("No [spasticity], reflexes: [hyperreflexia] in legs", "absent present"),
        (
            "No [ptosis], mild [nystagmus] on the left, severe [dysarthria].",
            "absent present present",
        ),
        ("No [murmur], marked [hepatomegaly], [ascites] ++", "absent present present"),
        ("Heart without [murmur], [hepatomegaly] 3 cm.", "absent present"),
        ("no [cough], [vomiting] twice, no [diarrhea]", "absent present absent"),
        ("No [fever], [headache] present, [vomiting].", "absent present present"),
        ("no [rash], [headache] noted", "absent present"),
        ("Neither [ataxia] nor [tremor], [nystagmus] was marked.", "absent absent present"),
        ("No [fever], [chills], or [cough].", "absent absent absent"),
        ("No [fever], [chills], [cough].", "absent absent absent"),
        ("No [fever], severe [headache] or [cough].", "absent absent absent"),
        ("Denies [fever], [cough], [rash] and [pain].", "absent absent absent absent"),
        ("No [fever], [chills], [cough] for 3 days.", "absent absent absent"),
        ("No focal [weakness], [numbness] in the arms.", "absent absent"),
        # What is not done, rather than not there.
        ("Not on anticoagulation despite [atrial fibrillation]", "present"),
        ("No treatment for [hypertension] currently.", "present"),
        ("Aspirin - not given: [peptic ulcer]", "present"),
        ("Not on oxygen for [dyspnea].", "present"),
        ("No MRI was done for the [headache].", "present"),
        ("No surgery for [scoliosis] planned.", "present"),
        ("No formal testing of [hearing impairment] yet.", "present"),
        ("Without medication his [tremor] worsens.", "present"),
        (
            "Not on warfarin or aspirin in spite of her previous stroke\n"
            "Metformin 500 mg twice a day with food for [diabetes]\n"
            "Ramipril 5 mg in the morning, for [hypertension]",
            "present present",
        ),
        ("He is not on oxygen. No [dyspnea].", "absent"),
        # Several boxes in a line.
        ("Skin:  [Jaundice] ( ) yes (x) no     [Pruritus] (x) yes ( ) no", "absent present"),
        ("[Jaundice]: [ ] yes [x] no   [Pruritus]: [x] yes [ ] no", "absent present"),
        ("[Fever]        □ Yes   ■ No", "absent"),
        ("[Fever]        ■ Yes   □ No", "present"),
        ("✓ [Fever]  ✗ [Cough]  ✓ [Rash]", "present absent present"),
        ("( ) [Fever] (•) [Cough] ( ) [Rash]", "absent present absent"),
        ("[Confused]: [ ]\n[Delirium]: [x]", "absent present"),
        # More denials.
        ("[Glycosuria] negative", "absent"),
        ("[Glycosuria] negative.\n[Hematuria] positive.", "absent present"),
        ("[Seizures] (HP:0001250): excluded", "absent"),
        ("They have never seen him have a [seizure].", "absent"),
        ("She has never witnessed a [seizure] in him.", "absent"),
        # Persons.
        ("His mother is healthy but takes valproate for [epilepsy].", "family mother"),
        ("His mother is well but has [migraine].", "family mother"),
        ("His mother has [migraine] but he has [epilepsy].", "family mother|present"),
        ("Her mother has [migraine] but the patient has [ataxia].", "family mother|present"),
        ("Has anyone in your family had [hyperthermia]? Yes, my uncle", "family"),
        ("Family history is negative for [seizures] but positive for [migraine].", "absent|family"),
        (
            "| Sibling | Age | Phenotype |\n| older brother | 12 | [seizures], [ataxia] |\n"
            "| younger sister | 3 | [ptosis] |",
            "family brother|family brother|family sister",
        ),
        (
            "| Feature | II-1 (proband) | II-2 (sib) | I-2 (mother) |\n"
            "| [Macrocephaly] | - | + | + |\n| [Ptosis] | + | - | - |\n| [Gout] | | - | + |",
            "absent|present|family mother",
        ),
        ("Both he and his brother have [macrocephaly].", "present"),
        # Dictation, and other words.
        ("No [arthritis] no [rash] no [ulcers] some [dry eyes]", "absent absent absent present"),
        ("[Epilepsy] or fainting? neither", "absent"),
        ("His [cough] has gone.", "historical"),
        ("The [edema] disappeared.", "historical"),
        ("[Iron deficiency] likely.", "possible"),
        ("[Rash] is likely to improve.", "present"),
    ],
)
def test_statuses(nlp, text, expected):
    one = "|" in expected or text.replace("[ ]", "").replace("[x]", "").count("[") == 1
    assert statuses(nlp, text) == expected.split("|" if one else " ")


def test_measured_lines(nlp):
    """The lines and notes that were written before the rules."""
    right = n = 0
    for line in (BENCHMARKS / "assertion_lines.jsonl").read_text("utf8").splitlines():
        row = json.loads(line)
        places = sorted((row["text"].index(s), s) for s in row["expect"])
        found = contexts(nlp, row["text"], [(start, start + len(s)) for start, s in places])
        pairs = [(c.assertion, row["expect"][s]) for c, (_, s) in zip(found, places, strict=True)]
        right += sum(a == b for a, b in pairs)
        n += len(pairs)
    assert right == n
    for line in (BENCHMARKS / "notes_layout.jsonl").read_text("utf8").splitlines():
        note = json.loads(line)
        found = contexts(nlp, note["text"], [(m["start"], m["end"]) for m in note["mentions"]])
        wrong = [m for m, c in zip(note["mentions"], found, strict=True) if c.assertion != m["is"]]
        assert not wrong, (note["id"], wrong)


def test_extensions(nlp):
    doc = nlp.make_doc("Denies:\n- gout")
    assert [part.kind for part in doc._.layout.parts] == ["list"]
    doc.spans["bioel"] = [doc[-1:]]
    span = nlp.get_pipe("bioel_context")(doc).spans["bioel"][0]  # type: ignore[operator]
    assert (span._.assertion, span._.relative, span._.negated) == ("absent", "", True)
