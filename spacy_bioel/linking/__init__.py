"""The pipe `bioel_linker`: from mentions to candidates, evidence and decisions."""
