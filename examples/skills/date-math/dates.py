"""Arithmetic with dates. Each public function is a tool: types and docstring are what the model reads."""

import calendar
import datetime

# Most days between two dates whose working days are counted one by one: four centuries.
DAYS_MAX = 150_000
# Most of each unit in date_after: a century of months, and as many days as above.
MONTHS_MAX = 1_200
SATURDAY = 5


def days_between(start: str, end: str, holidays: list[str] = ()) -> dict:
    """Count the days from one date to another. The first date is not counted, the last one is.

    Args:
        start: The first date, YYYY-MM-DD.
        end: The last date, YYYY-MM-DD. If it is before the first, the numbers are negative.
        holidays: Dates that are no working days, YYYY-MM-DD.
    """
    first, last = _date("start", start), _date("end", end)
    free = {_date("holidays", day) for day in holidays}
    days = (last - first).days
    if abs(days) > DAYS_MAX:
        raise ValueError("the dates are %d days apart; at most %d are counted" % (abs(days), DAYS_MAX))
    earlier = min(first, last)
    counted = (earlier + datetime.timedelta(number) for number in range(1, abs(days) + 1))
    working = sum(_is_working(day, free) for day in counted)
    return {
        "days": days,
        "weeks": days // 7 if days >= 0 else -(-days // 7),
        "days_over": abs(days) % 7,
        "working_days": working if days >= 0 else -working,
        "start": _shown(first),
        "end": _shown(last),
    }


def date_after(start: str, days: int = 0, weeks: int = 0, months: int = 0, working_days: int = 0,
               holidays: list[str] = ()) -> dict:
    """Find the date that is a span of time after another one. Months are added first, then weeks and days, then working days.

    Args:
        start: The date to count from, YYYY-MM-DD.
        days: Days to add; negative numbers go back.
        weeks: Weeks to add.
        months: Months to add. A day that the month does not have becomes its last one.
        working_days: Days from Monday to Friday to add.
        holidays: Dates that are no working days, YYYY-MM-DD.
    """
    for name, number, most in (("days", days, DAYS_MAX), ("weeks", weeks, DAYS_MAX // 7),
                               ("months", months, MONTHS_MAX), ("working_days", working_days, DAYS_MAX)):
        if abs(number) > most:
            raise ValueError("%s must be from %d to %d" % (name, -most, most))
    first = _date("start", start)
    free = {_date("holidays", day) for day in holidays}
    try:
        found = _plus_months(first, months) + datetime.timedelta(days=days, weeks=weeks)
        step = datetime.timedelta(1 if working_days > 0 else -1)
        left = abs(working_days)
        while left:
            found += step
            left -= _is_working(found, free)
    except (OverflowError, ValueError):
        raise ValueError("the result is not between the years 1 and 9999") from None
    return {"date": found.isoformat(), "shown": _shown(found), "days_from_start": (found - first).days}


def month_calendar(year: int, month: int, marked: list[int] = ()) -> dict:
    """Make the calendar of a month as a Markdown file for the user. Weeks begin on Monday.

    Args:
        year: From 1 to 9999.
        month: From 1 to 12.
        marked: Days of the month to show in bold.
    """
    if not 1 <= year <= 9999 or not 1 <= month <= 12:
        raise ValueError("year must be from 1 to 9999 and month from 1 to 12")
    last = calendar.monthrange(year, month)[1]
    for day in marked:
        if not 1 <= day <= last:
            raise ValueError("marked: %d is no day of this month, which has %d" % (day, last))
    lines = ["| Week | Mon | Tue | Wed | Thu | Fri | Sat | Sun |", "| --- " * 8 + "|"]
    for week in calendar.Calendar().monthdayscalendar(year, month):
        number = datetime.date(year, month, max(week)).isocalendar()[1]
        cells = ["" if not day else "**%d**" % day if day in marked else str(day) for day in week]
        lines.append("| " + " | ".join([str(number), *cells]) + " |")
    title = "%s %d" % (calendar.month_name[month], year)
    return {
        "__artifact__": True,
        "type": "markdown",
        "title": title,
        "content": "# %s\n\n%s\n" % (title, "\n".join(lines)),
    }


def _date(name, text):
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError("%s: %r is no date; write YYYY-MM-DD" % (name, text)) from None


def _is_working(day, free):
    return day.weekday() < SATURDAY and day not in free


def _plus_months(day, months):
    years, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return datetime.date(years, month + 1, min(day.day, calendar.monthrange(years, month + 1)[1]))


def _shown(day):
    return "%s, %s" % (calendar.day_name[day.weekday()], day.isoformat())
