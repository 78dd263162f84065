"""rota: a durable task scheduler for fleets of agents."""

__version__ = "0.2.0"

__all__ = ["__version__"]
