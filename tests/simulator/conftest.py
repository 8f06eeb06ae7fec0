"""Tests in the folders below use the scripts and the orders beside this file, whose folder pytest adds to the path."""
