"""Tasks for Label Studio with the classes as predictions, and the labelling configuration that goes with them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from newfound.errors import UserError, as_path
from newfound.export.outputs import check_free, new_file
from newfound.export.reviewed_run import (
    VERDICTS,
    exported_classes,
    given_name,
    human_class,
    no_class_name,
    own_names_first,
    plain,
    read_decided,
    rejected_from,
)
from newfound.runs.review_state import NOT_A_CLASS, Reviewed
from newfound.screen import Screen, shown
from newfound.text import counted

CONFIG = """<View>
  <Image name="image" value="$image" zoom="true"/>
  <Choices name="class" toName="image" choice="single" required="true" showInline="true">
{choices}
  </Choices>
</View>
"""


@dataclass(frozen=True)
class LabelStudioExport:
    """What was written; ``document_root`` is the folder that Label Studio must serve."""

    tasks: Path
    config: Path
    document_root: Path
    images: int
    annotated: int


def config_beside(path: Path) -> Path:
    """Where the labelling configuration goes."""
    return path.with_name(f"{path.stem}-config.xml")


def export_label_studio(run: Path | str, out: Path | str, *, screen: Screen | None = None) -> LabelStudioExport:
    """Write tasks as JSON, and beside them the configuration with a choice per class."""
    screen, out = screen or Screen(quiet=True), as_path("out", out)
    config = config_beside(out)
    check_free(out, config)
    reviewed = read_decided(run)
    root = reviewed.results.root
    if not root.is_dir():
        raise UserError(f"{root} is not a folder of images: Label Studio could not show them")
    choices = choice_names(reviewed)
    classes = exported_classes(reviewed).tolist()
    tasks = [_task(reviewed, choices, i, number, root.name) for i, number in enumerate(classes)]
    lines = [f"    <Choice value={quoteattr(choice)}/>" for choice in choices.values()]
    with new_file(config) as file:
        file.write(CONFIG.format(choices="\n".join(lines)))
    with new_file(out) as file:
        json.dump(tasks, file, indent=1)
    annotated = sum("annotations" in task for task in tasks)
    _tell(out, config, root, reviewed, annotated, screen)
    return LabelStudioExport(out, config, root.parent, len(tasks), annotated)


def choice_names(reviewed: Reviewed) -> dict[int, str]:
    """What each class is called as a choice, `NOT_A_CLASS` too: printable, and all different."""
    numbers = [*sorted(reviewed.names), NOT_A_CLASS]
    names = [*(reviewed.names[k] for k in numbers[:-1]), no_class_name(reviewed)]
    printable = [shown(plain(name)).replace("\n", "\\n") for name in names]
    return dict(zip(numbers, own_names_first(names, printable, str), strict=True))


def image_url(file: str, folder: str) -> str:
    """Where Label Studio serves the file if it may serve the parent of ``folder``.

    >>> image_url("a cat/1&2.png", "photos")
    '/data/local-files/?d=photos/a%20cat/1%262.png'
    """
    path = f"{folder}/{file}" if folder else file
    return f"/data/local-files/?d={quote(path, safe='/', errors='surrogateescape')}"


def _task(reviewed: Reviewed, choices: dict[int, str], image: int, number: int, folder: str) -> dict[str, Any]:
    results, human = reviewed.results, human_class(reviewed, image)
    given, rejected = given_name(reviewed, image), rejected_from(reviewed, image)
    confidence = float(results.assignment.confidence[image])
    task: dict[str, Any] = {
        "data": {
            "image": image_url(results.files[image], folder),
            "file": plain(results.files[image]),
            "class": choices.get(number, ""),  # a rejected image has none
            "confidence": confidence,
            "given_label": "" if given is None else plain(given),
            "verdict": VERDICTS.get(int(reviewed.verdict[image]), ""),
            "rejected_from": "" if rejected is None else plain(rejected),
        }
    }
    predicted = _predicted(reviewed, image)
    if predicted is not None:
        result = _result(f"prediction-{image}", choices[predicted])
        task["predictions"] = [{"model_version": _version(reviewed), "score": confidence, "result": [result]}]
    if human is not None:
        task["annotations"] = [{"result": [_result(f"annotation-{image}", choices[human])]}]
    return task


def _predicted(reviewed: Reviewed, image: int) -> int | None:
    """The class to propose: the image's own, but the model's where a person moved it; none where it was rejected."""
    if reviewed.verdict[image] < 0:
        return None
    if not reviewed.placed[image]:
        return int(reviewed.class_of[image])
    number = reviewed.now(int(reviewed.results.assignment.classes[image]))
    return number if number in reviewed.names else NOT_A_CLASS


def _result(identity: str, choice: str) -> dict[str, Any]:
    return {"id": identity, "from_name": "class", "to_name": "image", "type": "choices", "value": {"choices": [choice]}}


def _version(reviewed: Reviewed) -> str:
    what = {"oracle": ", trained with the truth", "reading": ", a reading of a paper without public code"}
    marks = "".join(what[mark] for mark in reviewed.results.marks)
    return plain(f"newfound {reviewed.results.run.path.resolve().name}{marks}")


def _tell(out: Path, config: Path, root: Path, reviewed: Reviewed, annotated: int, screen: Screen) -> None:
    tasks = counted(len(reviewed.results), "task")
    screen.say(f"{tasks}, {annotated:,} of them with a person's label: {out}, {config}")
    screen.say(
        "start Label Studio with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and "
        f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={root.parent}; add {root} as local storage; see docs/export.md"
    )
    unserved = [file for file in reviewed.results.files if plain(file) != file]
    if unserved:
        screen.warn(
            f"Label Studio cannot show {counted(len(unserved), 'file')} with a name that is not UTF-8: {unserved[0]}"
        )
