"""Here errors are read at the command line, also where a test calls a function of it instead of the whole program."""

import pytest

from newfound.errors import for_the_command_line


@pytest.fixture(autouse=True)
def read_at_the_command_line():
    with for_the_command_line():
        yield
