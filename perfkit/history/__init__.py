"""Figures of many results over time: the file (`file`), and its trends with their steps (`trend`)."""
