"""The helpers beside this file are found from the folders below."""
