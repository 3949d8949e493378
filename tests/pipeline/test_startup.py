"""spaCy imports the factories for every pipeline: the import is cheap and does not fail."""

import subprocess
import sys
import textwrap


def run(code: str) -> str:
    """Output of a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_blank_pipeline_imports_nothing_heavy():
    printed = run(
        """
        import sys
        import spacy
        before = set(sys.modules)
        import spacy_bioel
        assert not [m for m in set(sys.modules) - before if not m.startswith("spacy_bioel")]
        spacy.blank("en")
        heavy = ("torch", "transformers", "sklearn", "scipy", "tokenizers", "pronto",
                 "pytorch_metric_learning", "pandas", "faiss", "typer")
        print([m for m in heavy if m in sys.modules and m not in before])
        print("spacy_bioel.factories" in sys.modules)
        """
    )
    assert printed == "[]\nTrue"


def test_without_torch_pipelines_are_made_and_networks_are_not():
    printed = run(
        """
        import sys
        sys.modules["torch"] = sys.modules["transformers"] = None
        import spacy
        nlp = spacy.blank("en")
        nlp.add_pipe("bioel_mentions")
        nlp.add_pipe("bioel_linker")
        print(nlp.pipe_names)
        from spacy.training import Example
        from spacy_bioel.doc import add_gold
        from spacy_bioel.types import AnnotatedText, Mention
        doc = nlp.make_doc("aspirin")
        add_gold(doc, AnnotatedText("1", "aspirin", (Mention(0, 7, "Drug", ("X:1",)),)))
        try:
            nlp.get_pipe("bioel_mentions").initialize(
                lambda: [Example(nlp.make_doc("aspirin"), doc)]
            )
        except Exception as error:
            print(str(error)[:6], "pip install 'spacy-bioel[train]'" in str(error))
        """
    )
    assert printed.splitlines() == [
        "['bioel_mentions', 'bioel_linker']",
        "[B040] True",
    ]
