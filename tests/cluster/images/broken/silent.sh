#!/bin/sh
# Runs and never says a word.
exec sleep 1000000
