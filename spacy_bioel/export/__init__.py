"""Writers that export linked documents in other programs' formats; the readers are in `io`."""
