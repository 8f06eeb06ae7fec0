"""The code of the first lesson, 00-tma.md: three ways to fetch a tile, what they cost, what checks the exercises."""
