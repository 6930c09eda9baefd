"""The best configuration of a server: candidates race against the present one, and the answer states how sure it is."""
