"""Tells the weekday of a date: weekday.py 2026-11-22"""
import datetime
import sys

NAMES = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

try:
    day = datetime.date.fromisoformat(sys.argv[1])
except (IndexError, ValueError):
    sys.exit("usage: weekday.py YYYY-MM-DD")
print("%s is a %s" % (day.isoformat(), NAMES[day.weekday()]))
