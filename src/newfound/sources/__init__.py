"""Where training takes its views from."""
