"""`python -m spacy_bioel` is the command `bioel`."""

from spacy_bioel.cli import main

if __name__ == "__main__":
    main()
