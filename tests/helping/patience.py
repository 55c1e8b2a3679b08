"""How long tests wait for another process, a server or a page."""

PATIENCE = 600.0  # seconds: only what hangs takes as long, however busy the machine is
PAGE_PATIENCE = 120.0  # for what a page shows: a test that fails takes as long
