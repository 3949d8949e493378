"""Link texts of a file, or the first ones of a corpus, and show one line for each link."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import spacy
import srsly
import typer

from spacy_bioel.cli.console import GpuId, show_line
from spacy_bioel.cli.inputs import stream_documents
from spacy_bioel.export.rows import link_texts, to_row

_N_SHOWN = 3  # documents of the corpus


def main(
    model: Path,
    corpus: Annotated[Path, typer.Argument(help="Only its texts are read.")],
    links: Annotated[Path, typer.Argument(help="JSON lines to write, as from `bioel link`.")],
    text: Annotated[str, typer.Option(help="A file with one text a line, or a folder.")] = "",
    gpu_id: GpuId = -1,
) -> None:
    documents = stream_documents(text or str(corpus), None)
    shown = islice(documents, None if text else _N_SHOWN)
    records = [to_row(linked) for linked in link_texts(spacy.load(model), shown)]
    srsly.write_jsonl(links, records)
    for record in records:
        show_line(f"\n{record['text']}")
        for link in record["links"]:
            best = link["candidates"][0] if link["id"] else {"name": "", "score": 0.0}
            offsets = f"{link['start']}-{link['end']}"
            show_line(
                f"  {offsets:>9}  {link['text']:<32} {link['label']:<10} {link['id'] or 'NIL':<16} "
                f"{best['score']:.2f}  {best['name']}".rstrip()
            )


if __name__ == "__main__":
    typer.run(main)
