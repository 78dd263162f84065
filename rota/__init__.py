"""rota: a durable task scheduler for fleets of agents."""

__version__ = "0.1.0"

__all__ = ["__version__"]
