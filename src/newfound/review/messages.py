"""What the page sends to the review's server, and what the server answers."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from newfound.report.thumbnails import MEDIA_TYPE

Number = Annotated[int, Field(ge=0, lt=2**53, strict=True)]


class Step(BaseModel):
    """Undo or redo, of the state with this revision."""

    model_config = ConfigDict(extra="forbid")
    revision: Number


class Wish(Step):
    """A decision as the page sends it; images by number."""

    action: Literal["rename", "merge", "split", "move", "dismiss", "judge"]
    class_: Number | None = Field(None, alias="class")
    name: str | None = None
    classes: list[Number] | None = None
    into: Number | None = None
    images: list[Number] | None = None
    to: Number | None = None
    verdict: Annotated[int, Field(ge=-1, le=1, strict=True)] | None = None  # a Literal would take true for 1


# The answers: models that describe them, which tests compare with what is sent


class ClassNow(BaseModel):
    """A class as it stands."""

    model_config = ConfigDict(extra="forbid")
    id: int
    name: str
    kind: Literal["known", "new"]
    nearest: int | None  # the class whose images lie closest, None for a class without images


class State(BaseModel):
    """All that decisions change; class_of, given and verdict have an entry per image."""

    model_config = ConfigDict(extra="forbid")
    revision: int
    classes: list[ClassNow]
    class_of: list[int]
    given: list[int]
    verdict: list[Literal[-1, 0, 1]]
    undo: str | None
    redo: str | None


class Revision(BaseModel):
    """How many changes there have been."""

    model_config = ConfigDict(extra="forbid")
    revision: int


class Refusal(BaseModel):
    """Why not, for a person to read."""

    model_config = ConfigDict(extra="forbid")
    detail: str


class Conflict(Refusal):
    """The state that a decision came too late for."""

    state: State


class Answer(JSONResponse):
    """JSON in ASCII: a folder name that is not UTF-8, and so a class name, can only be written in escapes."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": Refusal} for status in (403, 421, 500)}
OF_PICTURES: dict[int | str, dict[str, Any]] = {
    200: {"content": {MEDIA_TYPE: {}, "image/jpeg": {}}, "description": "A picture"},
    **{status: {"model": Refusal} for status in (404, 422)},
}
OF_CHANGES: dict[int | str, dict[str, Any]] = {
    200: {"model": State},
    409: {"model": Conflict},
    **{status: {"model": Refusal} for status in (400, 411, 413, 415, 422, 507)},
}
