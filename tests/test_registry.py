"""Every name that setup.cfg registers can be resolved."""

from __future__ import annotations

from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

import pytest
import spacy

SETUP = Path(__file__).parents[1] / "setup.cfg"
NAMES = {
    "console_scripts": ["bioel"],
    "spacy_factories": ["bioel_mentions", "bioel_linker", "bioel_context"],
    "spacy_tokenizers": ["spacy-bioel.BioTokenizer.v1"],
    "spacy_architectures": [
        "spacy-bioel.SpanEnumerator.v1",
        "spacy-bioel.BioTagger.v1",
        "spacy-bioel.ResCNN.v1",
        "spacy-bioel.DualEncoder.v1",
        "spacy-bioel.HierarchicalLinker.v1",
        "spacy-bioel.Reranker.v1",
        "spacy-bioel.GenerativeLinker.v1",
        "spacy-bioel.Seq2Seq.v1",
        "spacy-bioel.Transformer.v1",
        "spacy-bioel.WithSpelling.v1",
        "spacy-bioel.TransformerNames.v1",
        "spacy-bioel.CrossEncoder.v1",
    ],
    "spacy_readers": ["spacy-bioel.Corpus.v1", "spacy-bioel.Mix.v1"],
    "spacy_misc": [
        "spacy-bioel.KnowledgeBase.v1",
        "spacy-bioel.AutoIndex.v1",
        "spacy-bioel.ExactIndex.v1",
        "spacy-bioel.FaissIndex.v1",
        "spacy-bioel.Ngrams.v1",
    ],
    "spacy_callbacks": ["spacy-bioel.StepCounter.v1"],
    "spacy_loggers": ["spacy-bioel.ConsoleLog.v1"],
    "spacy_scorers": [
        "spacy-bioel.link_scorer.v1",
        "spacy-bioel.finder_scorer.v1",
        "spacy-bioel.mention_scorer.v1",
    ],
}


def read_entry_points() -> dict[str, dict[str, str]]:
    parser = ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keep the case of names
    parser.read(SETUP, encoding="utf8")
    groups = parser["options.entry_points"]
    return {
        group: dict(map(str.strip, line.split(" = ")) for line in text.strip().splitlines())
        for group, text in groups.items()
    }


def test_setup_cfg_registers_these_names() -> None:
    assert {group: list(names) for group, names in read_entry_points().items()} == NAMES


@pytest.mark.parametrize(
    "target", [target for names in read_entry_points().values() for target in names.values()]
)
def test_target_is_a_function(target: str) -> None:
    module, function = target.split(":")
    assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize(
    ("registry", "name"),
    [
        (group, name)
        for group, names in NAMES.items()
        for name in names
        if group not in ("console_scripts", "spacy_factories")  # below; spaCy loads these itself
    ],
)
def test_spacy_finds_the_name(registry: str, name: str) -> None:
    spacy.blank("en")  # brings the factories
    found = getattr(spacy.registry, registry.removeprefix("spacy_")).get(name)
    assert callable(found)


def test_factories_make_pipes() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_mentions")
    nlp.add_pipe("bioel_linker")
    nlp.add_pipe("bioel_context")
    assert nlp.pipe_names == NAMES["spacy_factories"]
