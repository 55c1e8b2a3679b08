"""newfound methods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from newfound.app.command import Command
from newfound.app.options import paragraphs
from newfound.errors import as_option
from newfound.methods import METHODS, Method, Needs, load
from newfound.screen import Screen
from newfound.text import sentence

ADVICE = """\
Which one?
- sdas, the default: the best, or as good as any, on the image sets we measured.
- simgcd takes a quarter of the time and comes within a few points; legogcd too.
- rss: as accurate as sdas on Flowers and CUB, in about half of the time. Worth
  a try if sdas takes too long.
- hdbscan: if nobody knows how many classes there are, or if many images may
  belong to none of them. It trains nothing.
- kmeans: a first look in seconds; any other method has to beat it.
- cms: where known classes matter most; its new ones were weaker.
- gcd, mugcd: for comparison; at best as good as simgcd.
- orca, rankstats: only for few, large classes (ten of 200 images); with many
  small ones they end below kmeans.
- uno: for comparison. With the included network, its published learning rate is
  too high: try --learning-rate 0.01."""


@paragraphs
@dataclass(frozen=True)
class Methods(Command):
    """List the methods for --method: what each one does, its paper and code, what differs here, what it needs."""

    def run(self, screen: Screen) -> None:
        show_methods(map(load, METHODS), screen)


def show_methods(methods: Iterable[Method], screen: Screen) -> None:
    """A row each."""
    grid = Table(header_style="bold", show_lines=True)
    grid.add_column("--method", no_wrap=True)
    grid.add_column("what it does, where it is from, what it needs", overflow="fold")
    for method in methods:
        parts = [Text(sentence(method.ABOUT)), Text(sentence(method.SOURCE), "dim")]
        if needs := needed(method.NEEDS):
            parts.append(Text(f"Needs {', '.join(needs)}."))
        grid.add_row(Text(method.NAME), Text("\n").join(parts))
    screen.table(grid)
    screen.say(ADVICE)
    screen.say("To see the options of a method: newfound discover --method NAME --help")


def needed(needs: Needs) -> list[str]:
    """What a method asks for beyond what every method has.

    >>> needed(Needs(strong_view=True, first_training="gcd", first_training_from="stage1"))
    ['a first training by gcd (made for you, or taken from --stage1 RUN)', 'a strongly augmented view']
    """
    taken = as_option(str(needs.first_training_from))
    first = f"a first training by {needs.first_training} (made for you, or taken from {taken} RUN)"
    asked = {
        first: needs.first_training is not None,
        "a strongly augmented view": needs.strong_view,
        "new views of the pixels in every step (--views fresh)": needs.pixels,
        "prompts in the backbone (a ViT)": needs.prompts,
        f"at most {needs.most_images or 0:,} images": needs.most_images is not None,
        "no --classes, as it finds their number itself": needs.own_count,
    }
    return [what for what, is_asked in asked.items() if is_asked]
