"""Rankings of systems by several methods: rank correlations and stability under resampling."""
