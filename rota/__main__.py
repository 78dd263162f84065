"""Makes `python -m rota` the same command as `rota`."""

from rota.cli import main

if __name__ == "__main__":
    main()
