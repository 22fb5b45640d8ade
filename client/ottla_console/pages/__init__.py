"""The pages, one module for each area: what a page shows, and the changes that it proposes."""
