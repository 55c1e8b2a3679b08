"""Images made ready for training: their backbone, and their views as it sees them."""

from __future__ import annotations

from functools import cached_property

from newfound.backbones import Backbone, load_backbone
from newfound.images import ImageTable
from newfound.screen import Screen
from newfound.settings import BANK_VIEWS, Settings
from newfound.settings.device import resolve_device
from newfound.sources import open_source
from newfound.training.task import Pretrained


class OpenedImages:
    """Weights are loaded and the bank is built when they are first asked for."""

    def __init__(self, table: ImageTable, settings: Settings, screen: Screen, *, strong: bool = False) -> None:
        self._table, self._settings, self._screen, self._strong = table, settings, screen, strong

    @cached_property
    def backbone(self) -> Backbone:
        """Its trunk is on the device."""
        s = self._settings
        backbone = load_backbone(
            s.backbone, image_size=s.image_size, weights=s.weights, grad_from_block=s.grad_from_block
        )
        backbone.trunk.to(resolve_device(s.device))
        if s.compile:
            backbone.trunk.compile()
        return backbone

    @cached_property
    def pretrained(self) -> Pretrained:
        """The views of all images, and fresh tails for them."""
        s = self._settings
        source = open_source(
            self._table, self.backbone, views=s.views, bank_views=s.bank_views or BANK_VIEWS, bank_dir=s.bank_dir,
            precision=s.precision, strong=self._strong, screen=self._screen,
        )  # fmt: skip
        return Pretrained(source, self.backbone.new_tail, self.backbone.feature_dim)
