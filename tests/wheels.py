"""A wheel of a pipeline, unpacked and run without a network."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import srsly

SCRIPT = Path(__file__).parent / "pipeline" / "link_offline.py"


def links_of_wheel(wheel: Path, texts: list[str], site: Path) -> dict[str, Any]:
    """Unpack a wheel into the folder `site`; what pipeline/link_offline.py writes about it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    work = site.with_name(f"{site.name}_work")
    work.mkdir()
    srsly.write_json(work / "texts.json", texts)
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    run = [str(SCRIPT), wheel.name.partition("-")[0], "texts.json", "links.json"]
    done = subprocess.run(
        [sys.executable, *run], cwd=work, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return dict(srsly.read_json(work / "links.json"))
