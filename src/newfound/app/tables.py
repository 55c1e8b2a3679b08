"""The tables that commands print."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from newfound.screen import Screen, shown
from newfound.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from newfound.class_count import ClassCount
    from newfound.finished import Discovery
    from newfound.images.scan import Skipped
    from newfound.runs.labelling import Labelled
    from newfound.tuning import Tuned

SHOWN = 10  # skipped files, at most


def show_classes(found: Discovery, screen: Screen) -> None:
    """The discovered classes, largest first."""
    a, files, stability = found.results.assignment, found.results.files, found.results.stability
    sizes, confidence = a.sizes(), a.mean_confidence()
    new = [k for k in range(a.n_known, len(a.class_names)) if sizes[k]]
    grid = Table(title="Discovered classes", title_justify="left", header_style="bold")
    grid.add_column("class")
    grid.add_column("images", justify="right")
    grid.add_column("confidence", justify="right")
    if stability is not None:
        grid.add_column("seeds", justify="right")
    grid.add_column("most certain")
    for k in sorted(new, key=lambda k: -sizes[k]):
        examples = shown("  ".join(files[i] for i in a.most_certain(k, 3)).replace("\n", "\\n"))
        seeds = [] if stability is None else [f"{stability.classes[k].found} of {len(stability.seeds)}"]
        grid.add_row(Text(shown(a.class_names[k])), f"{sizes[k]:,}", f"{confidence[k]:.2f}", *seeds, Text(examples))
    if new:
        screen.table(grid)
    if stability is not None and (sentence := stability.sentence(a)):
        screen.say(sentence)
    in_known = int(sizes[: a.n_known].sum())
    in_new = counted(int(sizes.sum()) - in_known, "image")
    in_none = f"; {none:,} are none of these" if (none := a.none()) else ""
    screen.say(f"{in_new} in {counted(len(new), 'new class')}, {in_known:,} in known ones{in_none}.")


def show_labelled(labelled: Labelled, screen: Screen) -> None:
    """How many images went into each class, largest first."""
    from newfound.runs.assignments import NONE_OF_THESE

    counts = Counter(zip(labelled.classes, labelled.is_new.tolist(), strict=True))
    grid = Table(header_style="bold")
    for column in ("class", "", "images"):
        grid.add_column(column, justify="right" if column == "images" else "left")
    for (name, is_new), count in sorted(counts.items(), key=lambda item: (item[0][0] == NONE_OF_THESE, -item[1])):
        kind = "" if name == NONE_OF_THESE else "new" if is_new else "known"
        grid.add_row(Text(shown(name)), kind, f"{count:,}")
    screen.table(grid)


def warn_of_skipped(skipped: Sequence[Skipped], everything: str, screen: Screen) -> None:
    """Name the first files that were skipped, with the reason; ``everything`` says where all of them are listed."""
    for item in skipped[:SHOWN]:
        screen.warn(f"skipped: {item.file}: {item.reason}")
    if len(skipped) > SHOWN:
        screen.warn(f"{counted(len(skipped), 'file')} skipped in total: {everything}")


def show_count(count: ClassCount, screen: Screen) -> None:
    """The curve, then the answer."""
    screen.say(f"By number of classes, {count.criterion}:")
    grid = Table(header_style="bold")
    grid.add_column("classes", justify="right")
    grid.add_column("mean", justify="right")
    grid.add_column("")
    for point in count.curve:
        plausible = count.low <= point.classes <= count.high
        mark = " best" if point.classes == count.best else ""
        bar = "█" * round(40 * max(point.score, 0)) + mark
        grid.add_row(str(point.classes), f"{point.score:.3f}", bar, style="" if plausible else "dim")
    screen.table(grid)
    screen.say(f"{count}.")
    screen.say(f"Cross-check (hierarchical clustering): {count.tree.best} ({count.tree.low} to {count.tree.high}).")


def show_report(report: dict[str, Any], screen: Screen) -> None:
    """Mean and sample standard deviation over seeds."""
    from newfound.research.run_bench import accuracy_rows
    from newfound.research.seed_statistics import over_seeds

    oracle = "; ORACLE, the truth was used in training" if "oracle" in report else ""
    grid = Table(title=f"{report['dataset']}, {over_seeds(report['seeds'])}{oracle}", title_justify="left")
    for column in ("accuracy, %", "All", "Old", "New"):
        grid.add_column(column, justify="left" if column.startswith("acc") else "right")
    for row in accuracy_rows(report):
        grid.add_row(*row)
    screen.table(grid)
    if "reading" in report:
        screen.say(report["reading"])


def show_score(metrics: dict[str, Any], screen: Screen) -> None:
    """All, Old and New beside plain k-means."""
    title = f"Against the truth, {counted(metrics['images_scored'], 'image')}"
    title += "; ORACLE, the truth was used in training" if "oracle" in metrics else ""
    grid = Table(title=title, title_justify="left")
    for column in ("accuracy, %", "All", "Old", "New"):
        grid.add_column(column, justify="left" if column.startswith("acc") else "right")
    for name, prefix in (("newfound", ""), ("k-means, same features", "kmeans_")):
        values = (metrics[prefix + group] for group in ("all", "old", "new"))
        grid.add_row(name, *("-" if value is None else f"{100 * value:.1f}" for value in values))
    screen.table(grid)
    if missing := metrics["images_without_truth"]:
        screen.warn(f"the truth file does not name {counted(missing, 'unlabelled image')}")


def show_tuned(found: Tuned, screen: Screen) -> None:
    """The candidates, best first, and which one to take."""
    from newfound.research.seed_statistics import deviation, mean_text

    accuracy, differences = 100 * found.accuracy(), found.differences
    old, new = (100 * found.accuracy(group).mean(axis=1) for group in ("old", "new"))
    grid = Table(title="Accuracy on images whose labels were hidden", title_justify="left")
    grid.add_column("accuracy, %", overflow="fold")
    for column in ("All", "Old", "New", "difference", "seconds"):
        grid.add_column(column, justify="right", no_wrap=True)
    for k in sorted(range(len(accuracy)), key=lambda k: -accuracy[k].mean()):
        all_of_them = mean_text(accuracy[k].mean(), deviation(accuracy[k].tolist()))
        difference = f"{100 * differences.means[k]:+.1f} ± {100 * differences.errors[k]:.1f}" if k else ""
        numbers = (all_of_them, f"{old[k]:.1f}", f"{new[k]:.1f}", difference, f"{found.seconds[k]:.0f}")
        grid.add_row(Text(shown(found.candidates[k].name)), *numbers, style="bold" if k == found.chosen else "")
    screen.table(grid)
    screen.say(f"All: mean ± sample standard deviation over {accuracy.shape[1]} splits.")
    screen.say("difference: that of All to the default, split by split: mean ± standard error.")
    screen.say(f"{choice_sentence(found)} To sort the images:")


def choice_sentence(found: Tuned) -> str:
    """Which of the settings to take, and why."""
    k, differences = found.chosen, found.differences
    if not k:
        return "Nothing is better than the default by more than two standard errors: keep it."
    better, error = 100 * differences.means[k], 100 * differences.errors[k]
    return (
        f"{found.candidates[k].name} is better than the default by {better:.1f} points, "
        f"more than two standard errors of {error:.1f}: take it."
    )
