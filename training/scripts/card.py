"""Copy a tuned pipeline of the project, with its model card: see `spacy_bioel.cli.card`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from doubts import doubts
from specs import is_mixture, load_spec, parts_of

from spacy_bioel.cli.card import CorpusFacts, Facts, read_scores, size_of, write_card
from spacy_bioel.files import replacing_folder

_DEMO = (
    "Demo, do not use for real work: it was trained on a few invented texts, to show that "
    "everything works. For real texts: `spacy_bioel.load()`, or a pipeline trained on your corpus."
)


def main(
    corpus: str,
    config: Path,
    name: Annotated[str, typer.Option(help="Of the package, without the language.")],
    version: Annotated[str, typer.Option()],
    seed: Annotated[int, typer.Option()] = 0,
    author: Annotated[str, typer.Option(help="Default: the corpus's own, or none.")] = "",
) -> None:
    """Read models/CORPUS/tuned and metrics/CORPUS/dev.json; write models/CORPUS/final."""
    tuned, data = Path("models") / corpus / "tuned", Path("corpus") / corpus
    parts = abouts(corpus)
    facts = Facts(
        name=name,
        version=version,
        authors=author or next((about["authors"] for about in parts if "authors" in about), ""),
        corpora=[
            CorpusFacts(about["title"], about.get("licence", ""), about.get("domain", ""))
            for about in parts
        ],
        sizes={"train": size_of(data / "train.spacy"), "dev": size_of(data / "dev.jsonl")},
        kb=_read_json(Path("kb") / corpus / "meta.json"),
        scores=read_scores(Path("metrics") / corpus / "dev.json"),
        meta=_read_json(tuned / "meta.json"),
        made=[
            f"```bash\n{command(corpus, config, seed)}\n```",
            f"Config: `{config.as_posix()}` with the settings of the corpus. Seed: {seed}. The "
            "same seed gives the same pipeline on one machine.",
        ],
        limits=[warning[0].upper() + warning[1:] for warning in doubts(corpus, "dev")],
        demo=_DEMO if any(about.get("demo") for about in parts) else "",
    )
    with replacing_folder(Path("models") / corpus / "final") as folder:
        # Links take no room; the files of the card replace theirs.
        shutil.copytree(tuned, folder, copy_function=_link_or_copy, dirs_exist_ok=True)
        write_card(folder, facts)


def abouts(corpus: str) -> list[dict[str, Any]]:
    """`about` of a corpus, or of each part of a mixture; at least a title."""
    parts = parts_of(corpus) if is_mixture(corpus) else [corpus]
    return [{"title": part} | load_spec(part).get("about", {}) for part in parts]


def command(corpus: str, config: Path, seed: int) -> str:
    """The command that makes the pipeline again."""
    found = f"python -m spacy project run all . --vars.corpus {corpus} --vars.config {config.stem}"
    found += f" --vars.seed {seed}"
    folder = config.parent.as_posix()
    return found if folder == "training/configs" else f"{found} --vars.configs {folder}"


def _read_json(path: Path) -> dict[str, Any]:
    # Not by srsly, whose 0.6 becomes 0.6000000000000001.
    return dict(json.loads(path.read_text(encoding="utf8")))


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


if __name__ == "__main__":
    typer.run(main)
