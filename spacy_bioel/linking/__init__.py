"""The pipe `bioel_linker`: finds candidates for mentions, weighs their evidence, and decides."""
