"""Version of the installed package."""

from importlib import metadata

try:
    __version__ = metadata.version("blackwell-matmul")
except metadata.PackageNotFoundError:
    __version__ = "0+unknown"
