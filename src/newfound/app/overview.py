"""newfound --help: what can be typed after `newfound`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping

from newfound.app.command import Command

ABOUT = "newfound sorts a folder of images into the classes you have named and those nobody has named yet."
OWN_PHOTOS = 'On photos of your own, in one folder per known class and a folder "unlabelled":'
USUAL = ("discover", "resume", "review", "predict", "export")  # what people need first


def overview(commands: Mapping[str, type[Command]]) -> str:
    """The commands, each with its first sentence, as wide as the terminal."""
    width = shutil.get_terminal_size().columns - 1
    rest = [name for name in commands if name not in USUAL]
    parts = [
        "usage: newfound COMMAND ...",
        textwrap.fill(ABOUT, width),
        textwrap.fill("To try it on a small sample:", width) + "\n  newfound demo",
        textwrap.fill(OWN_PHOTOS, width) + "\n  newfound discover photos",
        _listed("commands", {name: commands[name] for name in USUAL}, width),
        _listed("also", {name: commands[name] for name in rest}, width),
        textwrap.fill("newfound COMMAND --help shows its options; newfound --version prints the version.", width),
    ]
    return "\n\n".join(parts)


def _listed(title: str, commands: Mapping[str, type[Command]], width: int) -> str:
    lines = [f"{title}:"]
    for name, kind in commands.items():
        text = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
        start = f"  {name:10}"
        lines.append(textwrap.fill(text, width, initial_indent=start, subsequent_indent=" " * len(start)))
    return "\n".join(lines)
