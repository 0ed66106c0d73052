"""Collects what figures are computed from, by kind; and requests of the services that compute them."""
