"""Figures of many results over time."""
