"""Examples that a pipe cannot learn from: it says so."""

from typing import Any

import pytest
from spacy.language import Language
from spacy.training import Example
from tiny import examples

TEXT = "Smith has seizures."
LINKS = {"entities": [(10, 18, "Disease")], "links": {(10, 18): {"MESH:D012640": 1.0}}}


def weights_of(nlp: Language) -> bytes:
    pipes: Any = (nlp.get_pipe(name) for name in ("bioel_mentions", "bioel_linker"))
    return b"".join(pipe.model.to_bytes() for pipe in pipes)


@pytest.mark.parametrize("annotations", [LINKS, {"spans": {"sc": [(10, 18, "Disease")]}}])
def test_annotations_in_other_places(trained, annotations):
    optimizer = trained.resume_training()
    example = Example.from_dict(trained.make_doc(TEXT), annotations)
    found = "sc" if "spans" in annotations else "doc.ents"
    before = weights_of(trained)
    with pytest.warns(UserWarning) as warned:
        losses = trained.update([example], sgd=optimizer)
    messages = [str(warning.message) for warning in warned]
    for name in ("bioel_mentions", "bioel_linker"):
        says = f"[W345] {name!r} learns nothing from these examples: they have annotations in"
        assert any(m.startswith(f"{says} {found}, but no gold") for m in messages), messages
    assert losses == {"bioel_mentions": 0.0, "bioel_linker": 0.0}
    assert weights_of(trained) == before
    # As the warning says.
    reference = example.reference
    reference.spans["bioel_gold"] = list(reference.ents or reference.spans["sc"])
    losses = trained.update([example], sgd=optimizer)
    assert min(losses.values()) > 0


def test_batches_with_some_gold_and_without_any_annotation(trained, texts):
    """The pipes learn from these without a warning, which tests turn into an error."""
    optimizer = trained.resume_training()
    only_entities = Example.from_dict(trained.make_doc(TEXT), LINKS)
    assert trained.update([only_entities, *examples(trained, texts)], sgd=optimizer)
    assert trained.update([Example.from_dict(trained.make_doc(TEXT), {})], sgd=optimizer)


def test_a_label_that_the_model_does_not_have(trained):
    optimizer = trained.resume_training()
    reference = trained.make_doc(TEXT)
    reference.spans["bioel_gold"] = [reference.char_span(10, 18, "Symptom", "MESH:D012640")]
    with pytest.warns(
        UserWarning, match=r"\[W346\].*'Symptom'.*: its model has \('Chemical', 'Disease'\)"
    ):
        trained.update([Example(trained.make_doc(TEXT), reference)], sgd=optimizer)
