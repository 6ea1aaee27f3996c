"""Entity linking on Ray, after Ganea & Hofmann 2017, "Deep Joint Entity Disambiguation with Local Neural Attention"."""

__version__ = "0.1.0"
