"""Scores of `spacy evaluate`, and warnings where gold annotations do not fit the pipeline."""

import inspect
import warnings
from collections.abc import Callable

import pytest
import spacy
from spacy.cli.evaluate import evaluate, handle_scores_per_type
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from tiny import linking_nlp

from spacy_bioel.kb.build import build_kb
from spacy_bioel.scoring.scorers import make_link_scorer_v1, make_mention_scorer_v1
from spacy_bioel.types import Concept

TEXT = "fever after levodopa and aspirin"


@pytest.fixture(scope="module")
def nlp() -> Language:
    return spacy.blank("en")


def make_doc(nlp: Language, key: str, spans: list[tuple[int, int, str, str]]) -> Doc:
    doc = nlp(TEXT)
    doc.spans[key] = [doc.char_span(s, e, label, kb_id=kb_id) for s, e, label, kb_id in spans]
    return doc


def make_example(
    nlp: Language,
    gold: list[tuple[int, int, str, str]],
    predicted: list[tuple[int, int, str, str]],
) -> Example:
    return Example(make_doc(nlp, "bioel", predicted), make_doc(nlp, "bioel_gold", gold))


GOLD = [(0, 5, "D", "A|B"), (12, 20, "C", "C"), (25, 32, "C", "")]


def ours(scores: dict[str, object]) -> dict[str, object]:
    """Return the scores without the copies for `spacy evaluate`."""
    return {key: value for key, value in scores.items() if not key.startswith("spans_")}


def test_mention_scores(nlp):
    example = make_example(nlp, GOLD, [(0, 5, "D", "NIL"), (12, 20, "D", "NIL")])
    scores = make_mention_scorer_v1()([example])
    # right: fever; levodopa has the wrong label. 1 of 2, 1 of 3, 2 * 1 / (2 + 3)
    assert scores == {
        "bioel_mention_p": 0.5,
        "bioel_mention_r": pytest.approx(1 / 3),
        "bioel_mention_f": pytest.approx(0.4),
        "spans_bioel_p": 0.5,
        "spans_bioel_r": pytest.approx(1 / 3),
        "spans_bioel_f": pytest.approx(0.4),
        # C: two gold mentions, none predicted. D: one gold mention, and two predictions.
        "spans_bioel_per_type": {
            "C": {"p": 0.0, "r": 0.0, "f": 0.0},
            "D": {"p": 0.5, "r": 1.0, "f": pytest.approx(2 / 3)},
        },
        "spans_sc_per_type": {
            "mentions": {"p": 0.5, "r": pytest.approx(1 / 3), "f": pytest.approx(0.4)}
        },
    }


def test_link_scores(nlp):
    predicted = [(0, 5, "D", "B|A"), (6, 11, "D", "X"), (25, 32, "C", "NIL")]
    scores = make_link_scorer_v1()([make_example(nlp, GOLD, predicted)])
    # linked gold: fever {A, B}, levodopa C; linked predictions: fever, after. P 1/2, R 1/2.
    # Of the two gold mentions with an id only fever was predicted, and it is right.
    of_links = {"bioel_link_p": 0.5, "bioel_link_r": 0.5, "bioel_link_f": 0.5}
    assert ours(scores) == of_links | {"bioel_link_acc": 1.0}
    assert (scores["spans_bioel_link_f"], "spans_bioel_f" in scores) == (0.5, False)
    of_d = scores["spans_bioel_link_per_type"]["D"]
    assert of_d == {"p": 0.5, "r": 1.0, "f": pytest.approx(2 / 3)}


def test_none_without_gold_and_zero_without_predictions(nlp):
    empty = Example(nlp(TEXT), nlp(TEXT))
    assert make_mention_scorer_v1()([empty])["bioel_mention_f"] is None
    scores = ours(make_link_scorer_v1()([]))
    assert scores == dict.fromkeys(f"bioel_link_{metric}" for metric in ("p", "r", "f", "acc"))
    unlinked = make_link_scorer_v1()([make_example(nlp, GOLD, [])])
    assert (unlinked["bioel_link_f"], unlinked["bioel_link_acc"]) == (0.0, 0.0)


def test_a_longer_span_is_not_the_gold_span(nlp):
    gold = [(12, 20, "C", "C"), (25, 32, "C", "A")]
    # Right ids at other offsets: "after levodopa", "levodopa and aspirin".
    none_found = make_example(nlp, gold, [(6, 20, "C", "C"), (12, 32, "C", "A")])
    assert make_link_scorer_v1()([none_found])["bioel_link_acc"] == 0.0
    one_found = make_example(nlp, gold, [(6, 20, "C", "C"), (25, 32, "C", "A")])
    assert make_link_scorer_v1()([one_found])["bioel_link_acc"] == 1.0  # 1 of 1
    wrong = make_example(nlp, gold, [(25, 32, "C", "B")])
    assert make_link_scorer_v1()([one_found, wrong])["bioel_link_acc"] == 0.5
    without_id = make_example(nlp, [(0, 5, "D", "")], [(0, 5, "D", "A")])
    assert make_link_scorer_v1()([without_id])["bioel_link_acc"] is None


def test_keys_are_settings_and_the_scorers_are_registered(nlp):
    make = spacy.registry.scorers.get("spacy-bioel.link_scorer.v1")
    example = Example(
        make_doc(nlp, "mine", [(0, 5, "D", "A")]), make_doc(nlp, "truth", [(0, 5, "D", "A")])
    )
    scores = make(spans_key="mine", gold_key="truth")([example])
    assert scores["bioel_link_f"] == scores["spans_mine_link_f"] == 1.0


@pytest.mark.filterwarnings("ignore:.*W382")
def test_labels_that_are_not_annotated_do_not_count(nlp):
    predicted = [(0, 5, "D", "A|B"), (6, 11, "C", "C"), (12, 20, "C", "C")]
    example = make_example(nlp, [(0, 5, "D", "A|B")], predicted)
    assert make_mention_scorer_v1()([example])["bioel_mention_p"] == pytest.approx(1 / 3)
    example.reference.spans["bioel_gold"].attrs["annotates"] = ["D"]
    assert make_mention_scorer_v1()([example])["bioel_mention_p"] == 1.0
    assert make_link_scorer_v1()([example])["bioel_link_f"] == 1.0


def test_what_spacy_evaluate_prints(nlp, capsys):
    """The name of the group is the default of its option --spans-key."""
    predicted = [(0, 5, "D", "B|A"), (6, 11, "D", "X"), (25, 32, "C", "NIL")]
    example = make_example(nlp, GOLD, predicted)
    scores = make_mention_scorer_v1()([example]) | make_link_scorer_v1()([example])
    handle_scores_per_type(scores, {}, silent=False)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["mentions", "66.67", "66.67", "66.67"] in printed
    assert ["links", "50.00", "50.00", "50.00"] in printed
    assert inspect.signature(evaluate).parameters["spans_key"].default == "sc"
    # Documents with such a group are scored by the pipe that writes it, such as spancat.
    example.predicted.spans["sc"] = []
    assert "spans_sc_per_type" not in make_link_scorer_v1()([example])
    assert "spans_sc_per_type" not in make_link_scorer_v1()([])


def warnings_of(scorer: Callable[..., object], example: Example) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scorer([example])
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("ids", "is_warned"), [("D003920", True), ("MESH:D003920", False)])
def test_a_forgotten_prefix_is_warned_of(tmp_path, ids, is_warned):
    build_kb([Concept("MESH:D003920", ("diabetes",))], tmp_path / "kb")
    nlp = linking_nlp(tmp_path / "kb", mentions="dictionary", model={"dim": 16})
    reference = nlp.make_doc("She has diabetes.")
    reference.spans["bioel_gold"] = [reference.char_span(8, 16, label="Disease", kb_id=ids)]
    found = warnings_of(nlp.evaluate, Example(nlp.make_doc(reference.text), reference))
    messages = [message for message in found if "[W340]" in message]
    assert bool(messages) == is_warned
    assert all("MESH" in message for message in messages)


@pytest.mark.parametrize(
    ("labels", "annotates", "is_warned"),
    [
        ("D", None, False),
        ("DC", None, True),
        ("C", None, True),
        ("DC", ["D"], False),  # they do not count
        ("DDDDDC", None, False),  # few
        ("", None, False),
    ],
)
def test_labels_that_gold_lacks_are_warned_of(nlp, labels, annotates, is_warned):
    example = make_example(nlp, GOLD[:1], [(0, 5, label, "") for label in labels])
    if annotates:
        example.reference.spans["bioel_gold"].attrs["annotates"] = annotates
    messages = warnings_of(make_mention_scorer_v1(), example)
    assert [message.startswith("[W382]") for message in messages] == [True] * is_warned
    assert all("(C; gold: D)" in message for message in messages)
