"""Placements as cases for simulators: traces of every device, their network, and a replay that checks them."""
