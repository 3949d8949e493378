"""Show the output of `bioel link`: each text, and below it a line for each link."""

from __future__ import annotations

from pathlib import Path

import srsly
import typer


def main(links: Path) -> None:
    for record in srsly.read_jsonl(links):
        typer.echo(f"\n{record['text']}")
        for link in record["links"]:
            best = link["candidates"][0] if link["id"] else {"name": "", "score": 0.0}
            place = f"{link['start']}-{link['end']}"
            typer.echo(
                f"  {place:>9}  {link['text']:<32} {link['label']:<10} {link['id'] or 'NIL':<16} "
                f"{best['score']:.2f}  {best['name']}".rstrip()
            )


if __name__ == "__main__":
    typer.run(main)
