"""Files and folders are replaced completely or not at all."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spacy_bioel import files as atomic
from spacy_bioel.files import replacing_file, replacing_folder, replacing_text

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(out: Path, text: str = "new") -> None:
    with replacing_file(out) as path:
        path.write_text(text)


def test_a_file_is_replaced_or_stays(tmp_path):
    out = tmp_path / "out"
    write(out, "old")
    with pytest.raises(RuntimeError), replacing_file(out) as path:
        path.write_text("half")
        raise RuntimeError
    assert (out.read_text(), names_in(tmp_path)) == ("old", ["out"])
    write(out)
    assert (out.read_text(), names_in(tmp_path)) == ("new", ["out"])


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_stay(tmp_path, mode):
    out = tmp_path / "out"
    out.write_text("old")
    out.chmod(mode)
    inside = []
    with replacing_file(out) as path:
        inside.append(stat.S_IMODE(path.stat().st_mode))
        path.write_text("new")
    assert (stat.S_IMODE(out.stat().st_mode), inside) == (mode, [mode])


@posix
def test_a_new_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    write(tmp_path / "out")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "usual").stat().st_mode


@posix
@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives away")
def test_the_owner_stays(tmp_path):
    out = tmp_path / "out"
    out.write_text("old")
    os.chown(out, 1234, 4321)
    write(out)
    assert (out.stat().st_uid, out.stat().st_gid) == (1234, 4321)


@posix
def test_the_target_of_a_symbolic_link_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("file", "nothing yet"):
        link = tmp_path / f"link to {name}"
        link.symlink_to(Path("there") / name)
        write(link, name)
        assert link.is_symlink()
        assert (tmp_path / "there" / name).read_text() == name
    assert names_in(tmp_path / "there") == ["file", "nothing yet"]


@posix
def test_devices_and_pipes_are_written_to(tmp_path):
    write(Path("/dev/null"))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with replacing_text(pipe) as file:
        file.write("through")
    reader.join()
    assert read == ["through"] and stat.S_ISFIFO(pipe.stat().st_mode)


KILLED = """
import os, signal, sys
from pathlib import Path
from spacy_bioel.files import replacing_file, replacing_folder
with (replacing_file if sys.argv[1] == "file" else replacing_folder)(Path(sys.argv[2])) as path:
    (path if path.is_file() else path / "part").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@posix
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_files_of_a_killed_run_are_removed_by_the_next(tmp_path, kind):
    subprocess.run([sys.executable, "-c", KILLED, kind, tmp_path / "out"], check=False)
    [left] = names_in(tmp_path)
    assert left.startswith(".out.") and left.endswith(".new")
    other = tmp_path / f".other.{left.removeprefix('.out.')}"
    other.touch()
    alive = atomic._temporary_path(tmp_path / "out", "new")  # as if of another thread
    alive.touch()
    if kind == "file":
        write(tmp_path / "out")
    else:
        with replacing_folder(tmp_path / "out") as folder:
            (folder / "part").touch()
    assert names_in(tmp_path) == sorted([alive.name, other.name, "out"])


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_is_replaced_or_stays(tmp_path, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda *paths: False)
    out = tmp_path / "out"
    for content in ("first", "second"):
        with replacing_folder(out) as folder:
            (folder / content).touch()
        assert (names_in(out), names_in(tmp_path)) == ([content], ["out"])
    with pytest.raises(RuntimeError), replacing_folder(out) as folder:
        (folder / "third").touch()
        raise RuntimeError
    assert (names_in(out), names_in(tmp_path)) == (["second"], ["out"])


@pytest.mark.skipif(sys.platform != "linux", reason="the system call of Linux")
def test_a_folder_exists_at_any_time(tmp_path):
    out, seen, done = tmp_path / "out", [], threading.Event()
    out.mkdir()

    def watch() -> None:
        while not done.is_set():
            seen.append(out.is_dir())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(100):
        with replacing_folder(out) as folder:
            (folder / "part").touch()
    done.set()
    watcher.join()
    assert all(seen) and len(seen) > 10


@posix
def test_a_folder_moved_by_a_killed_run_is_restored(tmp_path, monkeypatch):
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                             capture_output=True, text=True, check=True)  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: int(process.stdout))
        moved = atomic._temporary_path(tmp_path / "out", "old")
    moved.mkdir()
    (moved / "old").touch()
    with pytest.raises(RuntimeError), replacing_folder(tmp_path / "out"):
        raise RuntimeError
    assert (names_in(tmp_path), names_in(tmp_path / "out")) == (["out"], ["old"])


def test_a_failed_exchange_restores_the_old_folder(tmp_path, monkeypatch):
    out, rename = tmp_path / "out", Path.rename
    out.mkdir()

    def refuse(self: Path, target: Path) -> Path:
        if self.suffix == ".new":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(atomic, "_exchange", lambda *paths: False)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="no"), replacing_folder(out):
        pass
    assert names_in(tmp_path) == ["out"]
