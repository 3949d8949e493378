"""A script that links texts with a pipeline, without a network.

python link_offline.py PIPELINE TEXTS.json LINKS.json
"""

import multiprocessing
import socket
import sys
from typing import Any

import spacy
import srsly

from spacy_bioel.doc import get_links


def refuse(*_: Any, **__: Any) -> None:
    raise OSError("the network is switched off")


# Not in `main`: under spawn each worker process runs this file, but not as the main one.
socket.socket.connect = refuse  # type: ignore[method-assign]
socket.getaddrinfo = refuse  # type: ignore[assignment]


def main(pipeline: str, texts: str, links: str) -> None:
    """Write the links of each text, as Python writes them, found in one process and in two."""
    multiprocessing.set_start_method("spawn")
    nlp = spacy.load(pipeline)
    found = {"kb": str(nlp.get_pipe("bioel_linker").kb.path)}
    for n_process in (1, 2):
        docs = nlp.pipe(srsly.read_json(texts), n_process=n_process, batch_size=2)
        found[str(n_process)] = [str(get_links(doc)) for doc in docs]
    srsly.write_json(links, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
