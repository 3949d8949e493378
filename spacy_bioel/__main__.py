"""Run the `bioel` command with `python -m spacy_bioel`."""

from spacy_bioel.cli import main

if __name__ == "__main__":
    main()
