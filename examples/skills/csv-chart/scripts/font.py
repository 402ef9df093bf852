"""A small bitmap font: ASCII, five columns, seven rows and two below the line.

Each glyph is a string of rows from the top; a row is one digit of base 32 whose five
bits are the columns, the highest bit at the left. Missing rows are empty.
"""

import unicodedata

_DIGITS = "0123456789abcdefghijklmnopqrstuv"

_GLYPHS = dict(zip(map(chr, range(32, 127)), """
0 4444404 aaa aavavaa 4fke5u4 op248j3 cik8lid 44 2488842 8422248 04lel4 044v44 00000448 000e 00000cc 11248gg
ehjlphe 4c4444e eh1248v v2421he 26aiv22 vgu11he 68guhhe v124888 ehhehhe ehhf12c 0cc0cc 0cc0c48 248g842 00v0v 8421248
eh12404 eh1dlle ehhvhhh uhhuhhu ehggghe sihhhis vgguggv vgguggg ehgnhhf hhhvhhh e44444e 72222ic hikokih ggggggv
hrllhhh hhpljhh ehhhhhe uhhuggg ehhhlid uhhukih fgge11u v444444 hhhhhhe hhhhha4 hhhllla hha4ahh hhha444 v1248gv
e88888e gg84211 e22222e 4ah 0000000v 84 00e1fhf ggmphhu 00egghe 11djhhf 00ehvge 698s888 00fhhhf1e ggmphhh 40c444e
2062222ic ggikoki c44444e 00qllll 00mphhh 00ehhhe 00uhhhugg 00fhhhf11 00mpggg 00fge1u 88s8896 00hhhjd 00hhha4 00hhlla
00ha4ah 00hhhhf1e 00v248v 2448442 4444444 8442448 008l2
""".split()))

ROWS = 9
CAP_ROWS = 7
SPACE = 3


def _columns(rows):
    """Turns rows into the columns that are used, each a list of the rows set."""
    values = [_DIGITS.index(digit) for digit in rows]
    columns = [[row for row, value in enumerate(values) if value >> (4 - column) & 1] for column in range(5)]
    while columns and not columns[0]:
        columns.pop(0)
    while columns and not columns[-1]:
        columns.pop()
    return columns


_COLUMNS = {letter: _columns(rows) for letter, rows in _GLYPHS.items()}


def fold(text):
    """Brings a text down to what the font has: accents go, other letters become '?'."""
    out = []
    for letter in unicodedata.normalize("NFKD", text):
        if letter in _COLUMNS:
            out.append(letter)
        elif letter in "\u2013\u2014\u2212":
            out.append("-")
        elif letter.isspace():
            out.append(" ")
        elif not unicodedata.combining(letter):
            out.append("?")
    return "".join(out)


# Figures keep one width, so that numbers stand in line.
_WIDTHS = {letter: 5 if letter.isdigit() else len(columns) or SPACE - 1 for letter, columns in _COLUMNS.items()}


def dots(text):
    """Returns [(column, row)] of a text at size 1."""
    found, at = [], 0
    for letter in fold(text):
        columns = _COLUMNS[letter]
        shift = (_WIDTHS[letter] - len(columns)) // 2
        for column, rows in enumerate(columns):
            found.extend((at + shift + column, row) for row in rows)
        at += _WIDTHS[letter] + 1
    return found


def width(text):
    """Columns of a text at size 1, without space after the last letter."""
    return max(0, sum(_WIDTHS[letter] + 1 for letter in fold(text)) - 1)
