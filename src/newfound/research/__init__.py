"""The literature's data sets, protocol, tables and figures."""
