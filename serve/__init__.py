"""The Ray Serve application."""
