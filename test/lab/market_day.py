"""What rented hours cost by a file of prices: market_day.py PRICES AUDIT EXPLAIN.

Rents and renewals are those of the audit; prices, ends of hours, evictions and refunds are played here. Prints what that costs beside what
the cluster says, and fails when they are more than 5 % apart.
"""
import bisect
import json
import re
import sys

HOUR = 3600

rows = [line.split()[:2] for line in open(sys.argv[1]) if line.strip()]
at, usd = [int(float(r[0])) for r in rows], [float(r[1]) for r in rows]


def price(s):
    return usd[max(bisect.bisect_right(at, s) - 1, 0)]


held, cost, evicted, bulk, refunded = {}, 0.0, 0, 0, 0.0  # held: lease -> [bid, begin of its hour, paid, renewed]


def hours_until(s):
    """Ends of hours and rising prices until s, in their order."""
    global cost, evicted, bulk, refunded
    row = bisect.bisect_right(at, hours_until.done)
    while True:
        ends = [(v[1] + HOUR, k) for k, v in held.items()]
        end, lease = min(ends) if ends else (s + 1, None)
        change = at[row] if row < len(at) else s + 1
        if min(end, change) > s:
            break
        if change <= end:
            gone = [k for k, v in held.items() if usd[row] > v[0] + 1e-9]
            for k in gone:
                refunded += held[k][2]
                cost -= held.pop(k)[2]
            evicted += len(gone)
            bulk += len(gone) > 0
            row += 1
        elif held[lease][3]:
            paid = price(end)
            cost += paid
            held[lease] = [held[lease][0], end, paid, False]
        else:
            del held[lease]
    hours_until.done = s


hours_until.done = 0
last = 0
for line in open(sys.argv[2]):
    f = line.split(None, 4)
    if len(f) < 5 or f[3] not in ("rent", "renew", "clock", "price"):
        continue
    what, rest = f[3], f[4]
    found = re.match(r"market 0(?: node (\d+))?\s+\d+\s+(\d+)\s+(\{.*\})", rest)
    if not found:
        continue
    s, last = int(found[2]), int(found[2])
    hours_until.done = hours_until.done or s
    hours_until(s)
    if what == "rent":
        bid = json.loads(found[3])["usd"]
        held[found[1]] = [bid, s, price(s), False]
        cost += price(s)
    elif what == "renew" and found[1] in held:
        held[found[1]][3] = True
told = open(sys.argv[3]).read()
for lease, left in re.findall(r"spot(\d+) costs .* of which (\d+) min are left", told):  # it was asked after the last event
    if lease in held:
        last = max(last, held[lease][1] + HOUR - 60 * int(left))
hours_until(last)
cost -= sum(paid * max(begin + HOUR - last, 0) / HOUR for _, begin, paid, _ in held.values())  # what is left of hours that run
said = re.search(r"nodes of markets have cost it ([0-9.e+-]+) USD, predicted ([0-9.e+-]+)", told)
if said is None:
    sys.exit("explain tells no cost")
print(f"{evicted} nodes were evicted, {bulk} times some of them at once, {refunded:.2f} USD refunded; "
      f"cost {float(said[1]):.3f} USD, by the file {cost:.3f} ({float(said[1]) / max(cost, 1e-9):.3f}), predicted {float(said[2]):.3f}")
sys.exit(0 if abs(float(said[1]) - cost) <= 0.05 * max(cost, 1e-9) else 1)
