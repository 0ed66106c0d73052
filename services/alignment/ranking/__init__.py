"""Rankings of systems by several methods: how alike they are, and how they hold when items are drawn anew."""
