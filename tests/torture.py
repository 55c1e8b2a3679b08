"""Kills newfound again and again, fills its disk, takes its images away, and looks whether anything is lost.

`make torture` does all of it and writes docs/results/torture.md; `make test` does a part. After each fault
`newfound resume` (the same command, where no run had begun) has to come to the end, with the bytes of an uninterrupted
run, and nothing left over.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # it is run as a program, too

import newfound.runs.decisions
from helping.forked import At, Ended, Forked, killed_after, run
from helping.live_review import Server
from helping.patience import PATIENCE
from helping.pictures import write_folder

REVIEW = ["review", "run", "--no-browser"]
DECISIONS: tuple[dict[str, object], ...] = (
    {"action": "rename", "class": 2, "name": "sky"},
    {"action": "judge", "images": [0, 3], "verdict": 1},
    {"action": "merge", "classes": [3], "into": 2},
    {"action": "move", "images": [20], "name": "cloud"},
    {"action": "rename", "class": 2, "name": "sea"},
)
PHASES = (  # of what a run does, by the file that changes
    (r"bank", "building the bank"),
    (r"run/(seeds|stability)", "the run with another seed"),
    (r"run/(checkpoint/stage1|log)", "training"),
    (r"run/checkpoint/kept-kmeans", "grouping the frozen features"),
    (r"run/anchors", "choosing anchors"),
    (r"run/checkpoint/stage2", "training with anchors"),
    (r"run/(map|report)", "the report"),
    (r"run/decisions", "saving a decision"),
    (r"run/(config|skipped|checkpoint)", "making the run folder"),
    (r"run/.", "writing results"),
    (r"run", "making the run folder"),
)
RESULTS = re.compile(r"run/(assignments\.csv|classes\.csv|embeddings\.npy|model\..*|anchors\.jsonl|checkpoint/.*)")
DISK = "size=100m"
IMAGE = "images/unlabelled/024.png"


def discover(*more: str, epochs: int = 2) -> list[str]:
    """The words of the command."""
    words = ["discover", "images", "--classes", "4", "--epochs", str(epochs), "--image-size", "32", "--bank-views", "2"]
    words += ["--batch-size", "12", "--bank-dir", "bank", "--out", "run", "--truth", "truth.csv"]
    return [*words, *more]


@dataclass(frozen=True)
class Fault:
    """A fault that was injected into a command, and what was wrong afterwards; nothing, if all is well."""

    what: str
    during: str
    wrong: str = ""


class Trial:
    """A folder of its own with images, in which commands run."""

    def __init__(self, folder: Path, sample: Path, words: list[str], pause: float) -> None:
        self.folder, self._words, self._pause = folder, words, pause
        shutil.copytree(sample, folder, dirs_exist_ok=True)

    def run(self, at: At = 0, then: Callable[[], object] | None = None) -> Ended:
        return run(self._next(), self.folder, at=at, then=then, pause=self._pause)

    def killed_after(self, seconds: float) -> Ended:
        return killed_after(seconds, self._next(), self.folder)

    def _next(self) -> list[str]:
        """What a person would type now."""
        return ["resume", "run"] if (self.folder / "run" / "config.toml").exists() else self._words

    def ends_like(self, reference: dict[str, bytes]) -> str:
        """Resume to the end, and compare; what differs."""
        ended = self.run()
        if ended.status:
            return f"it did not resume: {ended.complained.strip()}"
        return differences(self.files(), reference)

    def files(self) -> dict[str, bytes]:
        """Everything there is, but for moments and places."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.name != "lock":
                content = path.read_bytes().replace(os.fsencode(self.folder.resolve()), b"FOLDER")
                content = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", b"MOMENT", content)
                found[str(path.relative_to(self.folder))] = re.sub(rb'"seconds": [\d.]+', b"SECONDS", content)
        return found

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def differences(found: dict[str, bytes], reference: dict[str, bytes]) -> str:
    """In a few words; nothing where there are none."""
    words = [f"{name} is left over" for name in found.keys() - reference.keys()]
    words += [f"{name} is missing" for name in reference.keys() - found.keys()]
    words += [f"{name} differs" for name in reference.keys() & found.keys() if found[name] != reference[name]]
    return "; ".join(sorted(words))


def phase(change: str) -> str:
    path = change.split(" ", 1)[1]
    return next(name for pattern, name in PHASES if re.match(pattern, path))


def clear_sentence(ended: Ended, *words: str) -> str:
    """What is wrong with how a command complained; nothing, if it is one sentence that names the matter."""
    lines = ended.complained.splitlines()
    if ended.status != 2 or len(lines) != 1 or not lines[0].startswith("newfound: "):
        return f"status {ended.status}, said: {ended.complained.strip()[-300:]}"
    missing = [word for word in words if word not in ended.complained]
    return f"does not name {missing}: {ended.complained.strip()}" if missing else ""


class Torture:
    """All faults, on a run small enough to be made hundreds of times."""

    def __init__(self, place: Path, words: list[str] | None = None, pause: float = 0.0) -> None:
        self.place, self.words, self.pause, self.random = place, words or discover(), pause, random.Random(0)
        self.sample = place / "sample"
        write_folder(self.sample)
        self.trials = 0
        whole = self.trial()
        started = time.monotonic()
        ended = whole.run()
        self.seconds = time.monotonic() - started
        assert ended.status == 0, ended.complained
        self.changes, self.whole, self.reference = ended.changes, whole, whole.files()

    def trial(self) -> Trial:
        self.trials += 1
        return Trial(self.place / f"trial-{self.trials}", self.sample, self.words, self.pause)

    def points(self, most: int | None, changes: Sequence[str], what: str = "") -> list[int]:
        """Numbers of changes that begin with ``what``: all, or some, from as many phases as can be."""
        every = [number for number, change in enumerate(changes, 1) if change.startswith(what)]
        if most is None or most >= len(every):
            return every
        self.random.shuffle(every)
        met = Counter[str]()
        turn = {}
        for number in every:  # the first of each phase, then the second of each
            during = phase(changes[number - 1])
            turn[number] = met[during]
            met[during] += 1
        return sorted(sorted(every, key=turn.__getitem__)[:most])

    def killed_at_changes(self, most: int | None = None) -> Iterator[Fault]:
        """Just before a file is opened for writing, renamed or removed; once each."""
        for number in self.points(most, self.changes):
            trial = self.trial()
            ended = trial.run(at=number)
            assert ended.status == -signal.SIGKILL, ended
            yield Fault("killed", phase(ended.changes[-1]), trial.ends_like(self.reference))
            trial.remove()

    def killed_in_every_phase(self) -> Iterator[Fault]:
        """One run, killed at the first change of each phase in turn, and resumed after each."""
        trial, phases = self.trial(), dict.fromkeys(map(phase, self.changes))
        for during in phases:
            ended = trial.run(at=lambda change, during=during: phase(change) == during)  # type: ignore[misc]
            assert ended.status == -signal.SIGKILL, (during, ended)
        wrong = trial.ends_like(self.reference)
        yield from (Fault("killed", during, wrong) for during in phases)
        trial.remove()

    def killed_at_moments(self, kills: int) -> Iterator[Fault]:
        """At any time, and again after resuming, up to five times in a row."""
        while kills > 0:
            trial, faults = self.trial(), []
            for _ in range(min(kills, self.random.randint(1, 5))):
                ended = trial.killed_after(self.random.uniform(0, self.seconds))
                if ended.status == -signal.SIGKILL:
                    during = phase(ended.changes[-1]) if ended.changes else "reading images"
                    faults.append(f"{during}, at any moment")
            wrong = trial.ends_like(self.reference)
            kills -= len(faults)
            yield from (Fault("killed", during, wrong) for during in faults)
            trial.remove()

    def killed_in_a_file(self, most: int | None = None) -> Iterator[Fault]:
        """With some of its bytes written."""
        for number in self.points(most, [_written(change) for change in self.changes], "open "):
            trial = self.trial()
            path = self.changes[number - 1].removeprefix("open ")
            ended = trial.run(at=number, then=self.within(path, self.whole))
            assert ended.status == -signal.SIGXFSZ, ended
            wrong = was_cut(trial.folder / path) or trial.ends_like(self.reference)
            yield Fault("killed", f"{phase(ended.changes[-1])}, within a file", wrong)
            trial.remove()

    def within(self, path: str, whole: Trial) -> Callable[[], object]:
        """What kills a command somewhere in the file that it is about to write."""
        grows = re.search(r"\.jsonl(\.tmp)?$|decisions", path)  # or it is written again with fewer lines
        written = 60 if grows else (whole.folder / path.removesuffix(".tmp")).stat().st_size
        return partial(no_file_beyond, Path(path), self.random.randrange(1, written))

    def killed_in_review(self, most: int | None = None) -> Iterator[Fault]:
        """While decisions are saved: those that were answered are there, and at most the one that was not."""
        whole = self.trial()
        shutil.copytree(self.whole.folder, whole.folder, dirs_exist_ok=True)
        answered, ended = reviewed(whole, 0)
        assert answered == len(DECISIONS), ended.complained
        reference, changes = whole.files(), ended.changes
        opened = self.points(most, [_written(change) for change in changes], "open ")
        for number, cut in [*((n, False) for n in self.points(most, changes)), *((n, True) for n in opened)]:
            trial = self.trial()
            shutil.copytree(self.whole.folder, trial.folder, dirs_exist_ok=True)
            path = changes[number - 1].removeprefix("open ")
            answered, ended = reviewed(trial, 0, at=number, then=self.within(path, whole) if cut else None)
            assert ended.status == -(signal.SIGXFSZ if cut else signal.SIGKILL), ended
            cut_there = was_cut(trial.folder / path) if cut else ""
            kept = len(decisions_of(trial))
            wrong = "" if answered <= kept <= answered + 1 else f"{answered} decisions were answered, {kept} are there"
            wrong = wrong or cut_there
            reviewed(trial, kept)
            during = phase(ended.changes[-1]) + (", within a file" if cut else "")
            yield Fault("review killed", during, wrong or differences(trial.files(), reference))
            trial.remove()

    def disk_full(self, most: int | None = None) -> Iterator[Fault]:
        """From some change on nothing can be written any more, until somebody makes room."""
        for number in self.points(most, self.changes):
            trial = self.trial()
            with mounted(trial, self.sample):
                ended = trial.run(at=number, then=lambda: fill(Path("filler")))
                (trial.folder / "filler").unlink()
                during = phase(self.changes[number - 1])
                told = "are free. Free some space" if "the bank needs" in ended.complained else "No space left"
                if ended.status:
                    wrong = clear_sentence(ended, told)
                else:  # what was left to do, such as a rename, needed no room
                    wrong = differences(trial.files(), self.reference)
                yield Fault("disk full", during, wrong or trial.ends_like(self.reference))

    def read_only(self, most: int | None = None) -> Iterator[Fault]:
        """Killed; then the folder cannot be written to; then it can again."""
        for number in self.points(most, self.changes):
            trial = self.trial()
            with mounted(trial, self.sample):
                ended = trial.run(at=number)
                remounted(trial, "ro")
                wrong = clear_sentence(trial.run(), "Read-only")
                remounted(trial, "rw")
                yield Fault("folder read-only", phase(ended.changes[-1]), wrong or trial.ends_like(self.reference))

    def image_gone(self) -> Iterator[Fault]:
        """Deleted, and changed, while the bank is built; then it is back."""
        for what, then in self._gone().items():
            trial = self.trial()
            ended = trial.run(at=1, then=then)
            wrong = clear_sentence(ended, "024.png", "has changed since")
            shutil.copy(self.sample / IMAGE, trial.folder / IMAGE)
            yield Fault(what, phase(ended.changes[-1]), wrong or trial.ends_like(self.reference))
            trial.remove()

    def image_gone_later(self) -> Iterator[Fault]:
        """The same while it trains: it is not needed."""
        training = next(n for n, change in enumerate(self.changes, 1) if phase(change) == "training")
        for what, then in self._gone().items():
            trial = self.trial()
            ended = trial.run(at=training, then=then)
            results = {path: content for path, content in self.reference.items() if RESULTS.fullmatch(path)}
            found = {path: content for path, content in trial.files().items() if RESULTS.fullmatch(path)}
            yield Fault(what, "training", ended.complained if ended.status else differences(found, results))
            trial.remove()

    def _gone(self) -> dict[str, Callable[[], object]]:
        other = (self.sample / "images/unlabelled/023.png").read_bytes()
        return {"image deleted": Path(IMAGE).unlink, "image changed": lambda: Path(IMAGE).write_bytes(other)}

    def clock_back(self, most: int | None = None) -> Iterator[Fault]:
        """Killed; all files are dated years ahead; the clock runs backwards from there."""
        for number in self.points(most, self.changes):
            trial = self.trial()
            ended = trial.run(at=number)
            for path in trial.folder.rglob("*"):
                os.utime(path, (4e9, 4e9))
            again = trial.run(at=1, then=turn_clock)
            wrong = again.complained if again.status else differences(trial.files(), self.reference)
            answered, _ = reviewed(trial, 0, at=1, then=turn_clock)
            wrong = wrong or ("" if answered == len(DECISIONS) else f"only {answered} decisions were answered")
            yield Fault("clock back", phase(ended.changes[-1]), wrong)
            trial.remove()


# What is done to a command


def fill(path: Path) -> None:
    """Take all the room that is left."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT)
    for piece in (1 << 20, 1 << 12, 1):
        try:
            while True:
                os.write(handle, bytes(piece))
        except OSError:
            continue
    os.close(handle)


def no_file_beyond(path: Path, length: int) -> None:
    """From now on the system kills us where we write further than that, counted from the file's end as it is now."""
    length += path.stat().st_size if path.exists() and not path.name.endswith(".tmp") else 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, length))


def was_cut(path: Path) -> str:
    """What is wrong if a file is not there in part, as it should be after a kill within it."""
    content = path.read_bytes() if path.exists() else b""
    return "" if content and (path.suffix != ".jsonl" or not content.endswith(b"\n")) else f"{path.name} was not cut"


def _written(change: str) -> str:
    """Locks are opened and stay empty."""
    return change if not change.endswith("lock") else ""


def turn_clock() -> None:
    """Years back, and running backwards from there."""
    started, real = time.time(), time.time
    time.time = lambda: 2 * started - 1e8 - real()

    class Turned(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Turned:
            return cls.fromtimestamp(time.time(), tz)

    newfound.runs.decisions.datetime = Turned  # type: ignore[misc]


class mounted:
    """A small disk at the trial's folder."""

    def __init__(self, trial: Trial, sample: Path) -> None:
        self._folder, self._sample = trial.folder, sample

    def __enter__(self) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", self._folder], check=True)
        shutil.copytree(self._sample, self._folder, dirs_exist_ok=True)

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", self._folder], check=True)
        shutil.rmtree(self._folder)


def remounted(trial: Trial, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how},{DISK}", "tmpfs", trial.folder], check=True)


# Reviewing


def reviewed(trial: Trial, done: int, at: int = 0, then: Callable[[], object] | None = None) -> tuple[int, Ended]:
    """Make the decisions from number ``done`` on, then stop; how many are answered when the server is gone."""
    command = Forked(REVIEW, trial.folder, at=at, then=then)
    server = _up(command)
    if server is not None and at == 0:
        server.state()  # it is ready for Ctrl-C once it answers
    while server is not None and done < len(DECISIONS):
        try:
            status, answer = server.decide(**DECISIONS[done], revision=server.state()["revision"])
        except (OSError, EOFError, ValueError):
            break
        if status != 200:
            command.kill()
            raise AssertionError(answer)
        done += 1
    if server is not None and (at == 0 or done == len(DECISIONS)):  # what is written at the end may be what kills it
        os.kill(command.pid, signal.SIGINT)
    return done, command.wait()


def _up(command: Forked) -> Server | None:
    """The server, once it says where it is; None if it dies before."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", command.text("said")):
            return Server(int(found.group(1)), found.group(2))
        if os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return None
        time.sleep(0.02)
    raise AssertionError(f"no server after {PATIENCE} seconds: {command.text('complained')}")


def decisions_of(trial: Trial) -> list[object]:
    path = trial.folder / "run" / "decisions.json"
    return list(json.loads(path.read_text())["decisions"]) if path.exists() else []


# As a program


def faults(place: Path, much: bool) -> Iterator[Fault]:
    """Everything there is, or a part: half a minute, and where it kills does not depend on the machine's speed."""
    torture = Torture(place / "one")
    yield from torture.killed_at_changes() if much else torture.killed_in_every_phase()
    yield from torture.killed_in_a_file(None if much else 1)
    yield from torture.killed_in_review(None if much else 1)
    yield from torture.image_gone()
    if can_mount():
        yield from torture.disk_full(40 if much else 1)
        yield from torture.read_only(10 if much else 1)
    if much:
        yield from torture.clock_back(10)
        yield from torture.image_gone_later()
        yield from torture.killed_at_moments(40)
        yield from Torture(place / "two", discover("--repeat", "2")).killed_at_changes(20)
        yield from Torture(place / "three", discover(epochs=4), pause=math.inf).killed_at_changes(20)


def can_mount() -> bool:
    return os.environ.get("NEWFOUND_TORTURE") == "own mounts"


def own_mounts() -> None:
    """Begin again in a name space in which small disks may be mounted, where the system allows that."""
    if can_mount() or shutil.which("unshare") is None:
        return
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
        return
    os.environ["NEWFOUND_TORTURE"] = "own mounts"
    os.execvp("unshare", ["unshare", "-Urm", sys.executable, *sys.argv])


def table(found: Sequence[Fault], seconds: float) -> str:
    kinds = list(dict.fromkeys((fault.what, fault.during) for fault in found))
    lines = ["| what | during | times | not as it should be |", "|---|---|---:|---:|"]
    for what, during in kinds:
        of_kind = [fault for fault in found if (fault.what, fault.during) == (what, during)]
        lines.append(f"| {what} | {during} | {len(of_kind)} | {sum(bool(fault.wrong) for fault in of_kind)} |")
    lines.append(f"| in all | | {len(found)} | {sum(bool(fault.wrong) for fault in found)} |")
    footer = f"`make torture`, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {seconds / 60:.0f} minutes."
    footer += "" if can_mount() else " No disk could be mounted here: full and read-only ones were not tried."
    return "\n".join([*lines, "", footer, '"During" is named after the file that was about to change.', ""])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--much", action="store_true", help="every point, instead of some")
    arguments.add_argument("--out", type=Path, help="a table in Markdown")
    arguments.add_argument("--json", type=Path, help="every fault")
    options = arguments.parse_args()
    own_mounts()
    started, found = time.monotonic(), []
    with tempfile.TemporaryDirectory() as place:
        for fault in faults(Path(place), options.much):
            found.append(fault)
            print(f"{len(found):4d}  {fault.what}, {fault.during}: {fault.wrong or 'nothing lost'}", flush=True)
    text = table(found, time.monotonic() - started)
    print(text)
    if options.out:
        options.out.write_text(text)
    if options.json:
        options.json.write_text(json.dumps([asdict(fault) for fault in found]))
    return int(any(fault.wrong for fault in found))


if __name__ == "__main__":
    sys.exit(main())
