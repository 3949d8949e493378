"""Compare outputs before and after a refactoring: `python -m benchmarks.frozen write FOLDER`.

`write` links some 600 documents with seven pipelines and writes a file for each set to FOLDER:
mentions, ids, candidates with scores, facts, context, and the decisions of explanations. `compare
BEFORE AFTER` shows the differences between two such folders and exits with 1 if there are any.
`digests FOLDER` records the digest of each set in benchmarks/results/frozen.json; `check FOLDER`
compares a folder with them.

Compare folders written on one machine: another BLAS may round the fourth decimal differently.

--data is a folder with the corpora; sets whose files are missing are reported and left out. The
contextual models are trained here for a few updates on the embedded corpus, so that changes of
training show too. Sentences of explanations are not compared: they may change.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example

import spacy_bioel
from benchmarks.record import RESULTS
from spacy_bioel.linking.evidence import FEATURES, default_fusion
from spacy_bioel.models.fusion import Fusion

ROOT = Path(__file__).parents[1]
FACTS = ("hgvs", "component", "gene")
CONTEXT = ("negated", "uncertain", "historical", "hypothetical", "experiencer", "context_cues")
# Evidence renamed since the digests were made: new name -> old name.
RENAMED: dict[str, str] = {}
Texts = Iterable[str]
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def pubtator(path: Path) -> Iterator[str]:
    """Yield title and abstract of each document."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf8") as file:
        parts: dict[str, str] = {}
        for line in file:
            fields = line.rstrip("\n").split("|", 2)
            if len(fields) == 3 and fields[1] in ("t", "a"):
                parts[fields[1]] = fields[2]
                if fields[1] == "a":
                    yield f"{parts['t']} {parts['a']}"


def jsonl(path: Path) -> Iterator[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf8") as file:
        yield from (json.loads(line)["text"] for line in file if line.strip())


def assertions(path: Path) -> Iterator[str]:
    yield from (line.split("\t")[1] for line in path.read_text("utf8").splitlines()[1:])


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the first 4,000 characters of each article."""
    yield from (text[:4000] for text in jsonl(path))


def abstracts(data: Path) -> Iterator[str]:
    types = data / "corpora" / "types"
    yield from islice(pubtator(data / "corpora/bc5cdr/CDR_DevelopmentSet.PubTator.txt"), 120)
    for name, n in {"tmvar3": 90, "biored": 90, "nlm_gene": 50, "s800": 20}.items():
        yield from islice(pubtator(types / f"{name}.PubTator.txt.gz"), n)
    yield from islice(paragraphs(data / "corpora/craft/articles.jsonl.gz"), 20)


def notes(data: Path) -> Iterator[str]:
    for name in ("notes", "note_lines", "clinical"):
        yield from jsonl(ROOT / "benchmarks" / f"{name}.jsonl")
    yield from jsonl(data / "phenotypes/probes_dev.jsonl")
    yield from islice(assertions(data / "phenotypes/assertion_dev.tsv"), 60)
    yield from islice(jsonl(data / "phenotypes/case_reports_dev.jsonl"), 20)


def starter(data: Path, folder: Path) -> Language:
    return spacy_bioel.load()


def clinical_starter(data: Path, folder: Path) -> Language:
    return spacy_bioel.load(preset="clinical")


def ontologies(data: Path, folder: Path) -> list[str]:
    """Build HPO and MONDO, and return their folders."""
    for name, source, options in (
        ("hp", "hp.obo.gz", ["--under", "HP:0000118"]),
        ("mondo", "MONDO-ontology-v2026-05-05.json.zst", []),
    ):
        if not (folder / name).exists():
            bioel("kb", "build", folder / name, data / "names/obo" / source, *options)
    return [str(folder / "hp"), str(folder / "mondo")]


@Language.component("frozen_without_labels")
def without_labels(doc: Doc) -> Doc:
    spans = [Span(doc, span.start, span.end) for span in doc.spans["bioel"]]
    doc.spans["bioel"] = SpanGroup(doc, name="bioel", spans=spans)
    return doc


def unlabelled(data: Path, folder: Path) -> Language:
    """Return the starter's detector and a linker with its encoder that gets no labels, has both
    ontologies, and weights of its own."""
    nlp = spacy_bioel.load(exclude=["bioel_linker"])
    nlp.add_pipe("frozen_without_labels")
    kb = ontologies(data, folder)
    nlp.add_pipe("bioel_linker", config={"kb": kb, "mentions": "spans", "set_ents": False})
    linker: Any = nlp.get_pipe("bioel_linker")
    for one in kb:
        linker.encode_kb(one)
    linker.set_kb(kb)
    weights = default_fusion().to_json(FEATURES)
    weights["direct"] = [0.8 * w + 0.05 for w in weights["direct"]]
    linker.fusion = Fusion.from_json(weights, FEATURES)
    return nlp


def two_ontologies(data: Path, folder: Path) -> Language:
    """Return a dictionary pipeline of HPO and MONDO, joined as in `bioel link kb/hp kb/mondo`."""
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": TOKENIZER}})
    kbs = ontologies(data, folder)
    clinical = {"@misc": "spacy-bioel.Notes.v1", "clinical": True, "measurements": True}
    config = {"kb": kbs, "mentions": "dictionary", "dictionary": {"nested": True}}
    nlp.add_pipe("bioel_linker", config=config | {"entities": {"notes": clinical}})
    nlp.add_pipe("bioel_context")
    return nlp


TOKENIZER = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
NAMES = {
    "@architectures": "spacy-bioel.ResCNN.v1",
    **{"dim": 32, "blocks": 1, "filters": 16},
}
TOK2VEC = {
    "@architectures": "spacy.HashEmbedCNN.v2",
    **{"width": 48, "depth": 2, "embed_size": 500, "window_size": 1, "maxout_pieces": 2},
    **{"subword_features": True, "pretrained_vectors": None},
}
MODELS: dict[str, dict[str, Any]] = {
    "dual_encoder": {
        "@architectures": "spacy-bioel.DualEncoder.v1",
        **{"tok2vec": TOK2VEC, "names": NAMES},
    },
    "multitask": {
        "@architectures": "spacy-bioel.HierarchicalLinker.v1",
        **{"tok2vec": TOK2VEC, "names": NAMES, "hidden": 24, "one_task": False},
    },
    "generative": {
        "@architectures": "spacy-bioel.GenerativeLinker.v1",
        "names": NAMES,
        "generator": {
            "@architectures": "spacy-bioel.Seq2Seq.v1",
            **{"layers": 1, "width": 64, "vocabulary": 600, "max_pieces": 32},
        },
    },
}


def contextual(name: str) -> Callable[[Path, Path], Language]:
    """Return a function that trains a small detector and a contextual linker for 30 updates."""

    def make(data: Path, folder: Path) -> Language:
        if not (folder / "mesh").exists():
            bioel("kb", "build", folder / "mesh", ROOT / "training/assets/mesh_excerpt.jsonl")
        corpus = ROOT / "training/assets/corpus/train.pubtator.txt"
        reader = {
            "@readers": "spacy-bioel.Corpus.v1",
            **{"path": str(corpus), "format": "pubtator", "prefix": "MESH", "limit": 60},
        }
        spacy.util.fix_random_seed(0)
        nlp = spacy.blank("en", config={"nlp": {"tokenizer": TOKENIZER}})
        mentions = "spans"
        if name == "multitask":
            mentions = "model"
        else:
            tok2vec = {"embed": {"width": 48, "rows": [500, 200, 200, 200]}}
            tok2vec["encode"] = {"width": 48, "depth": 1}
            nlp.add_pipe("bioel_mentions", config={"model": {"hidden": 48, "tok2vec": tok2vec}})
        training = {"synonyms": 24, "refresh_every": 10, "candidates": 4, "mentions": 16}
        settings = {"kb": str(folder / "mesh"), "mentions": mentions, "training": training}
        nlp.add_pipe("bioel_linker", config={"model": MODELS[name], **settings})
        nlp.config["initialize"]["components"] = {
            "bioel_linker": {"vocabulary": 1500, "width": 32},
        }
        read = spacy.util.registry.resolve({"corpus": reader})["corpus"]
        examples: list[Example] = list(read(nlp))
        optimizer = nlp.initialize(lambda: examples)
        optimizer.learn_rate = 0.01
        for update in range(30):
            batch = [examples[(8 * update + i) % len(examples)] for i in range(8)]
            nlp.update(batch, sgd=optimizer)
        linker: Any = nlp.get_pipe("bioel_linker")
        linker.encode_kb(folder / "mesh")
        linker.set_kb(folder / "mesh")
        return nlp

    return make


def embedded(data: Path) -> Iterator[str]:
    yield from islice(pubtator(ROOT / "training/assets/corpus/dev.pubtator.txt"), 20)


# Name -> texts, pipeline, and n if every n-th document is explained.
SETS: dict[str, tuple[Callable[[Path], Texts], Callable[[Path, Path], Language], int]] = {
    "starter": (abstracts, starter, 3),
    "clinical": (notes, clinical_starter, 2),
    "ontologies": (notes, two_ontologies, 2),
    "unlabelled": (notes, unlabelled, 4),
    **{name: (embedded, contextual(name), 4) for name in MODELS},
}


def bioel(*arguments: object) -> None:
    import subprocess

    command = [sys.executable, "-m", "spacy_bioel", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def span_record(span: Span) -> dict[str, Any]:
    extensions = span._
    return {
        "place": [span.start_char, span.end_char, span.label_],
        "ids": span.kb_id_,
        "candidates": [
            [c.id, c.score, c.name, evidence_of(c.evidence)] for c in extensions.candidates
        ],
        "facts": [extensions.get(name) for name in FACTS],
        "context": [extensions.get(name) for name in CONTEXT],
    }


def evidence_of(evidence: str) -> str:
    return "+".join(RENAMED.get(name, name) for name in evidence.split("+"))


def doc_record(doc: Doc) -> dict[str, Any]:
    group = doc.spans["bioel"]
    return {
        "text": doc.text,
        "spans": list(map(span_record, group)),
        "scores": list(group.attrs.get("scores", ())),
        "ents": [[e.start_char, e.end_char, e.label_, e.kb_id_] for e in doc.ents],
    }


def decisions(nlp: Language, text: str) -> dict[str, Any]:
    """Return the decisions in an explanation, without its sentences."""
    report = asdict(spacy_bioel.explain(nlp, text))
    return {
        "considered": sorted(
            [c["start"], c["end"], c["label"], round(c["probability"], 3), c["is_mention"]]
            for c in report["considered"]
        ),
        "mentions": [
            {
                "place": [m["start"], m["end"], m["label"]],
                "ids": m["ids"],
                "strings": m["strings"],
                "candidates": [[c["id"], c["score"], c["of_string"]] for c in m["candidates"]],
                "excluded": [c["id"] for c in m["excluded"]],
            }
            for m in report["mentions"]
        ],
    }


@app.command()
def write(
    folder: Path,
    data: Annotated[Path, typer.Option(help="Folder with the corpora.")] = Path("../shared/data"),
    only: Annotated[list[str] | None, typer.Option(help="Sets; all by default.")] = None,
) -> None:
    """Link the documents of all sets, and write links and explanations."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in only or SETS:
        texts_of, make, every = SETS[name]
        try:
            texts = list(texts_of(data))
        except FileNotFoundError as error:
            typer.echo(f"{name}: left out, {error.filename} is missing")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            nlp = make(data, Path(scratch))
            lines = [json.dumps(doc_record(doc)) for doc in nlp.pipe(texts, batch_size=32)]
            explained = [json.dumps(decisions(nlp, text)) for text in texts[::every]]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf8")
        (folder / f"{name}_explained.jsonl").write_text("\n".join(explained) + "\n", "utf8")
        typer.echo(f"{name}: {len(lines)} documents, {len(explained)} explained")


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from differences(before.get(key), after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif before != after:
        yield f"{path}: {json.dumps(before):.200} -> {json.dumps(after):.200}"


@app.command()
def compare(before: Path, after: Path, most: int = 20) -> None:
    """Show where two folders differ, and exit with status 1 if they do."""
    n = 0
    for path in sorted(before.glob("*.jsonl")):
        other = after / path.name
        if not other.exists():
            typer.echo(f"{path.name}: only before")
            continue
        pairs = zip(path.open(encoding="utf8"), other.open(encoding="utf8"), strict=False)
        changed = [(i, a, b) for i, (a, b) in enumerate(pairs) if a != b]
        n += len(changed)
        typer.echo(f"{path.name}: {len(changed)} documents differ")
        shown = (
            f"  {i} {line}" for i, a, b in changed for line in differences(*map(json.loads, (a, b)))
        )
        typer.echo("\n".join(islice(shown, most)), nl=bool(changed))
    raise typer.Exit(bool(n))


def digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=12).hexdigest()


@app.command()
def digests(folder: Path) -> None:
    """Record the digest of each file."""
    hashes = {path.name: digest(path) for path in sorted(folder.glob("*.jsonl"))}
    (RESULTS / "frozen.json").write_text(json.dumps(hashes, indent=1) + "\n", "utf8")


@app.command()
def check(folder: Path) -> None:
    """Compare a folder with the recorded digests; exit with 1 if a set differs."""
    recorded = json.loads((RESULTS / "frozen.json").read_text("utf8"))
    hashes = {path.name: digest(path) for path in sorted(folder.glob("*.jsonl"))}
    changed = [name for name in recorded if hashes.get(name) != recorded[name]]
    typer.echo(f"differ or are missing: {', '.join(changed)}" if changed else "all equal")
    raise typer.Exit(bool(changed))


if __name__ == "__main__":
    app()
