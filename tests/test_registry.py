"""Every name that setup.cfg registers can be resolved."""

import re
from configparser import ConfigParser
from pathlib import Path

import pytest
import spacy

SETUP = Path(__file__).parents[1] / "setup.cfg"
NAMES = {
    "console_scripts": ["bioel"],
    "spacy_bioel_commands": ["service"],
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
        "spacy-bioel.Genes.v1",
        "spacy-bioel.Chemicals.v1",
        "spacy-bioel.Variants.v1",
        "spacy-bioel.Composites.v1",
        "spacy-bioel.Notes.v1",
        "spacy-bioel.Ngrams.v1",
    ],
    "spacy_callbacks": ["spacy-bioel.FineTune.v1", "spacy-bioel.StepCounter.v1"],
    "spacy_loggers": ["spacy-bioel.ConsoleLog.v1", "spacy-bioel.TrainingPage.v1"],
    "spacy_scorers": [
        "spacy-bioel.link_scorer.v1",
        "spacy-bioel.end_to_end_scorer.v1",
        "spacy-bioel.mention_scorer.v1",
    ],
}


def test_setup_cfg_registers_these_names():
    parser = ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keep the case of names
    parser.read(SETUP, encoding="utf8")
    groups = parser["options.entry_points"]
    names = {group: re.findall(r"(\S+) = ", text) for group, text in groups.items()}
    assert names == NAMES


@pytest.mark.parametrize(
    "group", [group for group in NAMES if group.startswith("spacy_") and "bioel" not in group]
)
def test_spacy_finds_the_names(group):
    spacy.blank("en")  # brings the factories
    registry = getattr(spacy.registry, group.removeprefix("spacy_"))
    assert all(callable(registry.get(name)) for name in NAMES[group])


def test_factories_make_pipes():
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_mentions")
    nlp.add_pipe("bioel_linker")
    nlp.add_pipe("bioel_context")
    assert nlp.pipe_names == NAMES["spacy_factories"]
