"""What proves perfkit on a GPU: packages that fit together, their transport to a machine without network, and the proof itself."""
