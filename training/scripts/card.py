"""Copy a tuned pipeline of the project and add a model card (see `plugins.reports.card`)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from configs import choose_config
from doubts import doubts
from specs import is_mixture, load_spec, parts_of

from spacy_bioel.files import replacing_folder
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.evaluation.card import CorpusFacts, Facts, read_scores, size_of, write_card

# Scores of other pipelines, by what the card calls them: files in metrics/CORPUS.
OTHERS = {"as it was before training": "as_it_is", "from scratch": "scratch"}
_DEMO = (
    "Demo, do not use for real work: it was trained on a few invented texts to show that all of it "
    "works. For real texts use `spacy_bioel.load()`, or train a pipeline on your own corpus."
)


def main(
    corpus: str,
    config: Path,
    name: Annotated[str, typer.Option(help="Name of the package, without the language code.")],
    version: Annotated[str, typer.Option()],
    seed: Annotated[int, typer.Option()] = 0,
    gpu_id: Annotated[int, typer.Option()] = -1,
    start: Annotated[str, typer.Option(help="The pipeline that was named to start from.")] = "",
    kb: Annotated[str, typer.Option(help="The knowledge base that was named, if any.")] = "",
    author: Annotated[str, typer.Option(help="Default: the authors of the corpus, if any.")] = "",
) -> None:
    """Read models/CORPUS/tuned and metrics/CORPUS/dev.json; write models/CORPUS/final."""
    tuned, data = Path("models") / corpus / "tuned", Path("corpus") / corpus
    parts = abouts(corpus)
    made = command(corpus, config, seed, start, kb, gpu_id)
    config = choose_config(config, data / "train.spacy", start=start)
    others = {
        title: read_scores(path)
        for title, name in OTHERS.items()
        if (path := Path("metrics") / corpus / f"{name}.json").is_file()
        and path.stat().st_mtime > (data / "dev.jsonl").stat().st_mtime  # of these documents
    }
    facts = Facts(
        name=name,
        version=version,
        authors=author or next((about["authors"] for about in parts if "authors" in about), ""),
        corpora=[
            CorpusFacts(about["title"], about.get("licence", ""), about.get("domain", ""))
            for about in parts
        ],
        sizes={"train": size_of(data / "train.spacy"), "dev": size_of(data / "dev.jsonl")},
        kb=KnowledgeBase.open(Path("kb") / corpus).meta,
        scores=read_scores(Path("metrics") / corpus / "dev.json"),
        # srsly would read 0.6 as 0.6000000000000001.
        meta=json.loads((tuned / "meta.json").read_text(encoding="utf8")),
        made=[
            f"```bash\n{made}\n```",
            f"Config: `{config.as_posix()}` with the settings of the corpus. Seed: {seed}. The "
            "same seed gives the same pipeline on one machine.",
        ],
        limits=[warning[0].upper() + warning[1:] for warning in doubts(corpus, "dev")],
        others=others,
        demo=_DEMO if any(about.get("demo") for about in parts) else "",
    )
    with replacing_folder(Path("models") / corpus / "final") as folder:
        # Hard links save disk space; the card replaces some of the linked files.
        shutil.copytree(tuned, folder, copy_function=_link_or_copy, dirs_exist_ok=True)
        write_card(folder, facts)


def abouts(corpus: str) -> list[dict[str, Any]]:
    """Return `about` of a corpus, or of each part of a mixture, with a title in any case."""
    parts = parts_of(corpus) if is_mixture(corpus) else [corpus]
    return [{"title": part} | load_spec(part).get("about", {}) for part in parts]


def command(corpus: str, config: Path, seed: int, start: str, kb: str, gpu_id: int) -> str:
    """Return the command that reproduces the pipeline."""
    line = f"python -m spacy project run all . --vars.corpus {corpus} --vars.config {config.stem}"
    line += f" --vars.start {start}" * bool(start) + f" --vars.seed {seed}"
    line += f" --vars.kb {kb}" * (kb not in ("", f"kb/{corpus}"))
    line += f" --vars.gpu_id {gpu_id}" * (gpu_id >= 0)
    folder = config.parent.as_posix()
    return line if folder == "training/configs" else f"{line} --vars.configs {folder}"


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


if __name__ == "__main__":
    typer.run(main)
