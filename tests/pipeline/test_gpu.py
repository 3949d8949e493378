"""Each architecture on a simulated GPU, in a process of its own: PyTorch cannot add the simulated
device once it has computed gradients, or remove it again.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import needs


@needs("service")
@needs("contextual")
@pytest.mark.slow
def test_the_cases_of_a_simulated_gpu():
    env = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    cases = Path(__file__).with_name("gpu_cases.py")
    command = [sys.executable, "-m", "pytest", "-n", "0", "--slow", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, str(cases)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
