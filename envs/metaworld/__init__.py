"""Parts of the Meta-World environment of ImagineBench: a Sawyer arm at a table, 22 tasks. No adapter yet."""
