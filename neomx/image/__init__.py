"""Images: decoding, resizing, cropping and turning."""

from .image import imdecode, imread

__all__ = ["imdecode", "imread"]
