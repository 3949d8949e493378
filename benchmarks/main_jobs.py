"""Run the main jobs on real data: the commands of README.md and the tutorials, as users type them.

BIOEL_DATA=/folder/with/the/corpora python -m benchmarks.run main_jobs runs each job with bash in a
clone of the last commit, and records its time, exit status and scores. If a job fails, its output
is shown, and the exit status is 1. --short leaves out the training on BC5CDR, which takes longest.
"""

import csv
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import srsly
import typer

from benchmarks.record import Row, question, rows_of
from benchmarks.starter import script
from spacy_bioel.io.jsonl import read_texts_jsonl
from spacy_bioel.io.open import open_text

_ROOT = Path(__file__).parents[1]
# Files that the commands read -> where their contents are, in the folder with the corpora.
_FILES = {
    "hp.obo": "hp.obo*",
    "hpo_dev.jsonl": "hpo_dev.jsonl",
    "old.obo": "CL_2016.obo.zip",
    "new.obo": "CL-ontology-*.json.zst",
    "texts.jsonl": "craft/articles.jsonl.gz",
    "my_train.pubtator.txt": "CDR_TrainingSet.PubTator.txt",
    "my_dev.pubtator.txt": "CDR_DevelopmentSet.PubTator.txt",
}
# Files of which the commands read a part -> the number of documents, and what ends each.
_FIRST = dict.fromkeys(["my_train.pubtator.txt", "my_dev.pubtator.txt"], (40, "\n\n"))
_FIRST["texts.jsonl"] = (5, "\n")
_SCORES = {("mention", "f1"), ("end_to_end", "f1"), ("gold", "accuracy@1_nil_ignored")}
# One request to the service, at the address in the first line that it prints.
_SERVE = (
    "bioel serve kb/hp --port 0 2> serve.log & "
    "until grep -qs serves serve.log; do kill -0 $! && sleep 0.1 || exit 1; done; "
    """curl --json '{"texts": ["He has seizures."]}' """
    """"$(grep -o -m 1 'http://[^ ]*' serve.log)/link" | grep HP:0001250; """
    "status=$?; kill $! && wait $! && exit $status"
)


class Job(NamedTuple):
    """A job, what a user types, and the file in which `bioel evaluate` writes its scores."""

    name: str
    typed: str
    scores: str = ""


def jobs() -> list[Job]:
    """Return the jobs in their order; the first one is long."""
    corpus, releases = "docs/tutorials/corpus.md", "docs/guides/releases.md"
    trained = _typed(corpus, "project run all . --vars.corpus bc5cdr")
    trained = trained.replace("/folder/with/the/files", '"$BIOEL_DATA"')
    hpo = f"{_typed('README.md', 'hp.obo')} && bioel evaluate kb/hp hpo_dev.jsonl --json hp.json"
    tuned = _typed(corpus, "bioel train starter my_train")
    tuned += " && bioel evaluate models/mine my_dev.pubtator.txt --prefix MESH --json tuned.json"
    tuned += " --annotates Chemical --annotates Disease"
    accepted, baseline = _typed("docs/guides/check_ids.md", "--baseline").split(" && ")
    migrated = [
        _typed(releases, "bioel kb diff"),
        "bioel link kb/2016 texts.jsonl -o links.csv",
        _typed(releases, "bioel migrate links.csv"),
        _typed(releases, "bioel relink"),
    ]
    starter = "python -m spacy project run starter_pipeline"
    wheels = _installed("bc5cdr", "en_core_link"), _installed("starter", "en_bioel_sm")
    return [
        Job("train on BC5CDR", f"{trained} && {wheels[0]}", "metrics/bc5cdr/dev.json"),
        Job("find HPO terms", hpo, "hp.json"),
        Job("fine-tune the starter", tuned, "tuned.json"),
        # The first command finds names that HPO lacks, which is status 1.
        Job("check ids", f"{accepted}; {baseline}"),
        Job("migrate", " && ".join(migrated)),
        Job("serve", _SERVE),
        Job("package the starter", f"{starter} && {wheels[1]}"),
    ]


def _typed(page: str, words: str) -> str:
    """Return the commands of the block with these words, one after the other."""
    (block,) = (
        block
        for block in re.findall(r"```bash\n(.*?)\n```", (_ROOT / page).read_text("utf8"), re.S)
        if words in block
    )
    return block.replace("\n", " && ")


def _installed(folder: str, package: str) -> str:
    """Return the commands that install a wheel of the project, and run its pipeline."""
    install = f"pip install --force-reinstall --no-deps --target {package} packages/{folder}/*.whl"
    return f"{install} && PYTHONPATH={package}:$PYTHONPATH bioel link {package} note.txt"


@question("main_jobs", key=("system", "metric"))
def main_jobs(
    data: Annotated[
        Path, typer.Option(envvar="BIOEL_DATA", exists=True, file_okay=False, resolve_path=True)
    ],
    short: Annotated[bool, typer.Option("--short", help="Without the training on BC5CDR.")] = False,
) -> Iterator[Row]:
    failed = False
    with TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", _ROOT, folder], check=True)
        prepare(data, Path(folder))
        paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        environment = os.environ | {"BIOEL_DATA": str(data), "PYTHONPATH": folder}
        environment["PATH"] = os.pathsep.join(paths)
        for job in jobs()[short:]:
            before = os.times()
            done = subprocess.run(
                ["bash", "-c", job.typed],
                cwd=folder, env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            *_, user, system, seconds = map(float.__sub__, os.times(), before)
            about = {"status": done.returncode, "processor_seconds": round(user + system, 1)}
            yield from rows_of(job.name, {"seconds": seconds}, digits=1, **about, typed=job.typed)
            if done.returncode:
                failed = True
                typer.echo(done.stdout, err=True)
            elif job.scores:
                for row in srsly.read_json(Path(folder) / job.scores):
                    names = row["protocol"], row["metric"]
                    if names in _SCORES and not row["label"]:
                        yield from rows_of(job.name, {" ".join(names): row["value"]})
    if failed:
        raise typer.Exit(1)


def prepare(data: Path, folder: Path) -> None:
    """Put the files that the commands read into a folder."""
    finder = script("corpus_files").Finder([data], may_download=False)
    for name, pattern in _FILES.items():
        ((_, path),) = finder.choose([[{"file": pattern}]])
        with open_text(path) as file:
            n, end = _FIRST.get(name, (None, "\n"))
            parts = file.read().rstrip("\n").split(end)[:n]
        (folder / name).write_text("".join(part + end for part in parts), encoding="utf8")
    (folder / "note.txt").write_text("PMH: seizures. No chest pain today.\n", encoding="utf8")
    (folder / "data").mkdir()
    with (folder / "data" / "findings.csv").open("w", encoding="utf8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["hpo_id", "name"])
        for text in read_texts_jsonl(folder / "hpo_dev.jsonl"):
            rows.writerows([m.ids[0], text.text[m.start : m.end]] for m in text.mentions)
