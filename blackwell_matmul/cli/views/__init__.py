"""Views of the commands: functions that turn a result into lines of `rich`."""
