"""The report that architects read."""
