"""Found beside the script that is started."""
