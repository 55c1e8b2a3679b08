"""discover --overwrite: a run makes room for another one. Only what newfound wrote is removed, and no person's work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from newfound.errors import UserError, option
from newfound.runs.folder import WRITTEN, RunFolder
from newfound.runs.places import CONFIG, is_begun

OF_CHECKPOINT = re.compile(r"lock|[a-z]+\d*\.safetensors(\.tmp)?")  # a training, or what a method keeps


def check_replaceable(out: Path | None, *needed: Path | None) -> None:
    """Raise unless the run may be removed: it was named in full, is nobody's work and nothing that is ``needed``."""
    overwrite, other = option("overwrite", True), f"choose another {option('out')}"
    if out is None or out.name in ("", ".."):
        raise UserError(f"{overwrite} removes a run: name it in full with {option('out', 'RUN')}")
    if not is_begun(out):
        return  # nothing to remove, or nothing that newfound wrote, which the run itself refuses
    if any(path is not None and path.resolve() == out.resolve() for path in needed):
        raise UserError(f"{overwrite} would remove {out}, which this run starts from: {other}")
    if foreign := next((path for path in _files(out) if not _is_ours(path.relative_to(out))), None):
        raise UserError(f"{overwrite} leaves {out} alone: newfound did not write {foreign}. Move it away, or {other}.")
    if decided := next((path for path in _files(out) if path.name == "decisions.json"), None):
        raise UserError(
            f"{overwrite} leaves {out} alone: {decided} has what was decided in a review. Move that file away if it is "
            f"no longer needed, or {other}."
        )


def remove_run(run: RunFolder) -> None:
    """Remove what newfound wrote there; config.toml last, so that until then it is a run."""
    if not is_begun(run.path):
        return
    with run.held():
        files = [path for path in _files(run.path) if _is_ours(path.relative_to(run.path)) and path.name != "lock"]
        for path in sorted(files, key=lambda path: path == run.path / CONFIG):
            path.unlink()
    for folder in sorted(run.path.glob("seeds/**/"), reverse=True):  # inner ones first
        (folder / "lock").unlink(missing_ok=True)
        folder.rmdir()


def _files(folder: Path) -> Iterator[Path]:
    """All that is no folder, links among them: they are not followed."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        else:
            yield path


def _is_ours(file: Path) -> bool:
    """By its place below the run folder."""
    parts = file.parts
    if parts[0] == "seeds" and len(parts) > 2 and parts[1].isdecimal():
        return _is_ours(Path(*parts[2:]))
    if parts[0] == "checkpoint" and len(parts) == 2:
        return OF_CHECKPOINT.fullmatch(parts[1]) is not None
    return len(parts) == 1 and parts[0].removesuffix(".tmp") in WRITTEN
