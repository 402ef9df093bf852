"""Price quotes. Whoever runs the skill sets currency, tax, the highest total and the key of signatures; the model does not see them."""

import hashlib
import hmac
import json

from tukuy.skills import ConfigParam, SkillContext, skill

# Most characters of a signature that are shown: 80 bits.
SIGNATURE_CHARACTERS = 20


@skill(config_params=[
    ConfigParam(name="currency", type="select", options=["EUR", "USD", "GBP"], default="EUR"),
    ConfigParam(name="taxPercent", type="number", min=0, max=100, default=0),
    ConfigParam(name="maxTotal", type="number", min=1, default=10000, description="A higher total is refused"),
    ConfigParam(name="signingKey", type="secret", default="", description="Empty: quotes are not signed"),
])
def quote(items: list[dict], context: SkillContext) -> dict:
    """Make a price quote.

    Args:
        items: The items, each as {"name": "Desk", "count": 2, "price": 149.5}; the price is that of one, without tax.
    """
    settings = context.config
    lines = [_line(number, item) for number, item in enumerate(items, 1)]
    cents = sum(line["cents"] for line in lines)
    tax = round(cents * settings["taxPercent"] / 100)
    total = cents + tax
    if total > settings["maxTotal"] * 100:
        raise ValueError("the total %s is above %s, the highest amount that is quoted without approval"
                         % (_money(total), _money(settings["maxTotal"] * 100)))
    found = {
        "currency": settings["currency"],
        "items": [{"name": line["name"], "total": _money(line["cents"])} for line in lines],
        "net": _money(cents),
        "tax": _money(tax),
        "total": _money(total),
    }
    if settings["signingKey"]:
        found["signature"] = _signature(settings["signingKey"], found)
    return found


def _line(number, item):
    name, count, price = item.get("name"), item.get("count", 1), item.get("price")
    if not isinstance(name, str) or not name.strip():
        raise ValueError("items: entry %d has no name" % number)
    for what, value in (("count", count), ("price", price)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1_000_000:
            raise ValueError("items: the %s of %r must be a number from 0 to 1000000" % (what, name))
    return {"name": name.strip(), "cents": round(count * price * 100)}


def _money(cents):
    return "%.2f" % (cents / 100)


def _signature(key, found):
    text = json.dumps(found, sort_keys=True, ensure_ascii=True)
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()[:SIGNATURE_CHARACTERS]
