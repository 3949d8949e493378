"""The `bioel_linker` pipe: finds candidates for mentions, weighs the evidence, and decides."""
