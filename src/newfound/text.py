"""Words for numbers."""


def counted(n: int, one: str, many: str | None = None) -> str:
    """A number of things.

    >>> counted(1, "file"), counted(1200, "image"), counted(2, "known class", "known classes")
    ('1 file', '1,200 images', '2 known classes')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"
