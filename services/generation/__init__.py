"""The generation service: the one owner of model providers, their keys, limits, retries and answers."""
