"""Remove plugins from a copy of the repository: python .ci/remove_plugins.py NAME ...

Removes their folders, their tests and their entry points, as somebody would who does not want them.
"""

import re
import shutil
import sys
from pathlib import Path

names = sys.argv[1:]
for name in names:
    shutil.rmtree(Path("spacy_bioel/plugins", name))
    shutil.rmtree(Path("tests/plugins", name), ignore_errors=True)
if not [folder for folder in Path("spacy_bioel/plugins").iterdir() if folder.is_dir()]:
    shutil.rmtree("spacy_bioel/plugins")
    shutil.rmtree("tests/plugins", ignore_errors=True)
setup = Path("setup.cfg")
text = setup.read_text("utf8")
for name in names:
    text = re.sub(rf"^ .* = spacy_bioel\.plugins\.{name}\..*\n", "", text, flags=re.M)
text = re.sub(r"^spacy_bioel_\w+ =\n(?! )", "", text, flags=re.M)  # groups without entries
setup.write_text(text, "utf8")
