"""Files to records, one format a file."""
