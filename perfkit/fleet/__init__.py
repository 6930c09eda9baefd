"""Load points executed by several machines: how they are joined, driven, and compared with the driver's clock."""
