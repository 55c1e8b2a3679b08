"""What discover, tune, bench and study share: the settings of a run, with those of its method."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from newfound.app.command import Command
from newfound.app.option_boxes import Box, parsed_with_boxes
from newfound.app.options import chosen_method, typed_value, with_present_names, without_the_rest_of_help
from newfound.errors import SettingError, as_option
from newfound.methods import METHODS, Method, load, with_own, without_effect
from newfound.settings import AS_PUBLISHED, DEFAULTS, ON_OWN_IMAGES, Settings
from newfound.text import sentence

GROUPS = {  # of options, as --help shows them: those that people need first, then the rest
    "": ("classes", "labels", "out", "epochs", "method", "backbone", "seed", "repeat", "truth", "after"),
    "run": ("resume", "overwrite", "report"),
    "training": (
        "preset", "whitening", "frozen_views", "batch_size", "label_balance", "learning_rate", "momentum",
        "weight_decay", "rho", "projector_width", "grad_from_block",
    ),
    "image": ("unlabelled", "known", "image_size", "views", "bank_views", "weights"),
    "machine": ("device", "precision", "compile", "bank_dir"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WithSettings(Command):
    """A command with the shared settings and those of the method that --method names, each in a box of its own."""

    defaults: ClassVar[Mapping[str, object]] = {}  # of shared settings, where the command has others
    hidden: ClassVar[Collection[str]] = ()  # shared settings that the command does not take
    texts: ClassVar[Mapping[str, str]] = {}  # help texts of shared settings that mean something else here

    settings: Settings

    @property
    def torchrun_device(self) -> str | None:
        return self.settings.device

    @classmethod
    def parsed(cls, words: Sequence[str], *, prog: str) -> Self:
        """Read --method first, then the options it has."""
        words = with_present_names(words, cls.former_names)
        name = chosen_method(words, str(Settings.method), METHODS)
        idle = cls._without_effect(name, words)
        prog, method = prog if name == Settings.method else f"{prog} --method {name}", load(name)
        boxes = {
            "settings": Box(
                Settings,
                defaults={**shared_defaults(method), **cls.defaults},
                hidden=(*cls.hidden, *idle),
                texts=cls.texts,
            ),
            "own": Box(
                method.Settings, f"--method {name}", sentence(method.ABOUT), folders=[method.NEEDS.first_training_from]
            ),
        }
        words = without_the_rest_of_help(words)
        values = parsed_with_boxes(cls, words, prog=prog, boxes=boxes, groups=GROUPS, examples=cls.examples)
        own, settings = values.pop("own"), values.pop("settings")
        return cls(**values, settings=settings if own == method.Settings() else replace(settings, method=own))

    @classmethod
    def _without_effect(cls, name: str, words: Sequence[str]) -> Collection[str]:
        """Shared settings that are no options with this method; raises if one of them is among the words."""
        batches = typed_value(words, "--batches") if "batches" in load(name).Settings.__dataclass_fields__ else None
        idle = without_effect(with_own(Settings(method=name), {} if batches is None else {"batches": batches}))
        for setting in idle.keys() - {field.name for field in fields(cls)}:
            value = typed_value(words, as_option(setting))
            if value is not None:
                raise SettingError(setting, value, idle[setting])
        return idle


def shared_defaults(method: Method) -> dict[str, Any]:
    """The defaults of the shared settings, as far as they are known before the data are seen."""
    usual = {**DEFAULTS, **method.DEFAULTS}
    of_presets = {name for values in method.PRESETS.values() for name in values}
    of_presets |= {name for name, value in AS_PUBLISHED.items() if usual[name] != value}
    return {**usual, **dict.fromkeys((*ON_OWN_IMAGES, *of_presets), "by --preset")}
