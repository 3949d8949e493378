from __future__ import annotations

import sys
from pathlib import Path

# The small pipelines of the tests of the pipes.
sys.path.append(str(Path(__file__).parents[1] / "pipeline"))
