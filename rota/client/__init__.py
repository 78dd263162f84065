"""What users import: a client of the native API."""

from rota.client.client import RotaClient

__all__ = ["RotaClient"]
