"""The model `synthetic`, which responds at the times that a simulated queue gives."""
