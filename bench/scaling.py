#!/usr/bin/env python3
"""Computes what a million and a hundred million leases need, from the measured costs of one. For docs/scaling.md.

    bench/scaling.py            prints the tables
    bench/scaling.py --check    fails if docs/scaling.md has other tables; ./test runs this
    bench/scaling.py --write    puts the tables into docs/scaling.md

bench/unit-costs measures the costs, and writes them to bench/unit-costs.json. Prices, limits and scenarios are below.
"""

import json
import re
import sys
from math import ceil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/scaling.md"
COSTS = json.loads((ROOT / "bench/unit-costs.json").read_text())

HOURS = 730  # a month
GB = 1e9

# Assumptions: list prices in US dollars for US East, as known to the author in November 2026 and not looked up. Check
# them before you rely on a sum.
PRICES = {
    "service: processor-hour": 0.0385,  # EC2 m6g, with 4 GB of memory
    "PostgreSQL: processor-hour": 0.225,  # RDS db.r6g in two zones, with 8 GB of memory
    "PostgreSQL: GB-month": 0.23,  # RDS gp3 in two zones
    "etcd: processor-hour": 0.0385,  # EC2 m6g
    "etcd: GB-month": 0.08,  # EBS gp3
    "DynamoDB: write unit-hour": 0.00065,  # provisioned
    "DynamoDB: read unit-hour": 0.00013,
    "DynamoDB: million writes": 0.625,  # on demand
    "DynamoDB: million reads": 0.125,
    "DynamoDB: GB-month": 0.25,
    "Cosmos DB: RU/s-hour": 0.008 / 100,  # manual throughput, one region
    "Cosmos DB: GB-month": 0.25,
}

# Assumptions about what one database and one service can do.
BUSY = 0.6  # of each processor, and of what is provisioned
POSTGRES_PROCESSORS = 64  # the largest server
POSTGRES_LOG = 200e6  # bytes a second that one log writes, copies to a standby and archives
CHECKPOINT = 300  # seconds: PostgreSQL's default
ETCD_PROCESSORS = 8  # of each of three members
ETCD_QUOTA = 8e9  # bytes: the most that etcd's documentation recommends
ETCD_HISTORY = 300  # seconds: --auto-compaction-retention=5m
DYNAMODB_TABLE = 40_000  # write units a second of a table, unless Amazon raises the quota
DYNAMODB_PARTITION = 1_000  # write units a second
DYNAMODB_PARTITION_BYTES = 10e9
COSMOS_CONTAINER = 1_000_000  # RU/s of a container, unless Microsoft raises it
COSMOS_PARTITION = 10_000  # RU/s
COSMOS_PARTITION_BYTES = 50e9
COSMOS_WRITE = 10  # RU for a record of a KB, from Microsoft's documentation: docs/stores/cosmos.md
COSMOS_READ = 2
CACHE = 100_000  # leases that one service holds without loading them again
WAITERS = 5_000  # of one service: each has a connection
POLL = {"PostgreSQL": 0.2, "DynamoDB": 0.25, "etcd": 0.25, "Cosmos DB": 0.25}  # seconds, for each name with waiters
CROWD = 1_000  # waited names of one service: with each as many more, it polls a name more rarely
PURGES = 4 / 86_400  # one service purges every six hours, and reads all records

HOLD = 3600  # seconds that a lease is held before its release
WAITING = 0.01  # waiters for each lease, each for another name
TTLS = [30, 600]  # seconds; a lease is renewed three times in each
SCENARIOS = [(leases, ttl) for leases in (1_000_000, 100_000_000) for ttl in TTLS]
STORES = {"PostgreSQL": "postgres", "DynamoDB": "dynamodb", "etcd": "etcd", "Cosmos DB": "cosmos"}
OPERATIONS = ["acquire", "renew", "release"]
CALLERS = [1, 8, 64]


def cost(store, what, operation="renew, 64"):
    return COSTS[store]["operations"][operation][what]


def network(store, operation="renew, 64"):
    """Bytes between service and store: what the same operation sends on `memory:` is HTTP's."""
    return max(0, cost(store, "network bytes", operation) - cost("memory", "network bytes", operation))


def scenario(name, leases, ttl):
    """What this number of leases needs on this store."""
    renewals, changes = leases / (ttl / 3), 2 * leases / HOLD
    writes = renewals + changes
    waiting = leases * WAITING * COSTS["postgres"]["memory"]["waiter's us a second"]
    processors = (writes * cost(STORES[name], "service us") + waiting) / 1e6 / BUSY
    services = ceil(max(leases / CACHE, leases * WAITING / WAITERS, processors))
    memory = COSTS["postgres"]["memory"]
    waited = leases * WAITING / services
    polls = services * waited / (POLL[name] * (1 + waited // CROWD))
    need = {
        "renewals a second": renewals,
        "acquisitions and releases a second": changes,
        "names polled for waiters a second": polls,
        "service processes": services,
        "their memory, GB": leases * (memory["held"] + WAITING * (memory["connection"] + memory["waiter"])) / GB,
        "network to the databases, MB/s": (writes + polls) * network(STORES[name]) / 1e6,
        "services, $ a month": services * PRICES["service: processor-hour"] * HOURS,
    }
    need |= {"PostgreSQL": postgres, "DynamoDB": dynamodb, "etcd": etcd, "Cosmos DB": cosmos}[name](leases, writes, polls)
    need["first limit"] = max(need["used"], key=need["used"].get)
    need["of one database"] = need["used"][need["first limit"]]
    need["databases"] = ceil(need["of one database"])
    return need


def postgres(leases, writes, polls):
    size = leases * COSTS["postgres"]["bytes after 5 renewals"]
    processors = (writes + polls) * cost("postgres", "database us") / 1e6 / BUSY
    # Every page changes between two checkpoints, and its first change logs all of it.
    log = writes * cost("postgres", "log bytes") + size / CHECKPOINT
    money = max(2, processors) * PRICES["PostgreSQL: processor-hour"] * HOURS
    return {
        "storage, GB": size / GB,
        "processors of the databases": processors,
        "log, MB/s": log / 1e6,
        "used": {"processors": processors / POSTGRES_PROCESSORS, "log": log / POSTGRES_LOG},
        "databases, $ a month": money + size / GB * PRICES["PostgreSQL: GB-month"],
    }


def etcd(leases, writes, polls):
    size = (leases + writes * ETCD_HISTORY) * COSTS["etcd"]["bytes after 5 renewals"] / 6
    processors = (writes + polls) * cost("etcd", "database us") / 1e6 / BUSY
    money = max(2, processors) * PRICES["etcd: processor-hour"] * HOURS + size / GB * PRICES["etcd: GB-month"]
    return {
        "storage, GB": 3 * size / GB,
        "processors of the databases": 3 * processors,
        "log, MB/s": 3 * writes * cost("etcd", "log bytes") / 1e6,
        "used": {"processors": processors / ETCD_PROCESSORS, "quota of 8 GB": size / ETCD_QUOTA},
        "databases, $ a month": 3 * money,
    }


def dynamodb(leases, writes, polls):
    size = leases * (COSTS["dynamodb"]["item bytes"] + 100)  # Amazon adds 100 bytes to each item.
    units = writes * ceil(COSTS["dynamodb"]["item bytes"] / 1024)
    reads = polls + PURGES * leases
    hourly = (units * PRICES["DynamoDB: write unit-hour"] + reads * PRICES["DynamoDB: read unit-hour"]) / BUSY
    millions = units * PRICES["DynamoDB: million writes"] + reads * PRICES["DynamoDB: million reads"]
    storage = size / GB * PRICES["DynamoDB: GB-month"]
    return {
        "storage, GB": size / GB,
        "request units a second": units + reads,
        "partitions": ceil(max(units / DYNAMODB_PARTITION, size / DYNAMODB_PARTITION_BYTES)),
        "used": {"quota of a table": units / DYNAMODB_TABLE},
        "databases, $ a month": hourly * HOURS + storage,
        "the same on demand": millions * 3600 * HOURS / 1e6 + storage,
    }


def cosmos(leases, writes, polls):
    size = leases * COSTS["cosmos"]["item bytes"]
    units = writes * COSMOS_WRITE + (polls + PURGES * leases) * COSMOS_READ
    provisioned = units / BUSY
    money = provisioned * PRICES["Cosmos DB: RU/s-hour"] * HOURS
    return {
        "storage, GB": size / GB,
        "request units a second": units,
        "partitions": ceil(max(provisioned / COSMOS_PARTITION, size / COSMOS_PARTITION_BYTES)),
        "used": {"quota of a container": provisioned / COSMOS_CONTAINER},
        "databases, $ a month": money + size / GB * PRICES["Cosmos DB: GB-month"],
    }


def bytes_and_times():
    head = ["store", "a lease", "after 5 renewals", "log", "network", "service, µs", "database, µs"]
    rows = []
    for store, entry in COSTS.items():
        size = [entry.get("item bytes", entry[key]) for key in ("bytes of a lease", "bytes after 5 renewals")]
        used = [cost(store, "service us"), cost(store, "database us")]
        rows.append([*size, cost(store, "log bytes"), 0 if store == "sqlite" else network(store), *used])
    return table(head, [[f"`{store}:`", *map(number, row)] for store, row in zip(COSTS, rows)])


def calls():
    head = ["store", *(f"{operation}, {callers}" for callers in (1, 64) for operation in OPERATIONS)]
    rows = []
    for store in COSTS:
        keys = [f"{operation}, {callers}" for callers in (1, 64) for operation in OPERATIONS]
        rows.append([f"`{store}:`", *(number(cost(store, "swaps", key) + cost(store, "loads", key)) for key in keys)])
    return table(head, rows)


def grants():
    head = ["store", *map(str, CALLERS), "64, two services", "service, µs", "database, µs", "database, µs, two services"]
    rows = []
    for store, entry in COSTS.items():
        if store in ("dynamodb", "cosmos"):
            continue  # The rate of an emulator says nothing.
        rates, two = entry["grants a second"], entry["two services"]["64"]
        cells = [*(rates[str(callers)]["grants"] for callers in CALLERS), two["grants"]]
        cells += [rates["64"]["service us"], rates["64"]["database us"], two["database us"]]
        if store == "memory":  # Each service has a memory of its own.
            cells[3] = 0
        rows.append([f"`{store}:`", *map(number, cells)])
    return table(head, rows)


def memory():
    head = ["store", "held lease", "free name", "open connection", "waiter on a connection", "waiter, µs a second"]
    keys = ["held", "idle", "connection", "waiter", "waiter's us a second"]
    return table(head, [[f"`{store}:`", *(number(COSTS[store]["memory"][key]) for key in keys)] for store in ("memory", "postgres")])


def computed(leases, ttl):
    needs = [scenario(name, leases, ttl) for name in STORES]
    quantities = ["renewals a second", "acquisitions and releases a second", "names polled for waiters a second", "storage, GB"]
    quantities += ["processors of the databases", "log, MB/s", "request units a second", "partitions", "first limit", "of one database", "databases"]
    quantities += ["service processes", "their memory, GB", "network to the databases, MB/s"]
    quantities += ["databases, $ a month", "the same on demand", "services, $ a month"]
    rows = [[quantity, *(number(need.get(quantity, 0)) for need in needs)] for quantity in quantities]
    return table([f"{leases:,} leases, ttl {duration(ttl)}", *STORES], rows)


def ends():
    """How many leases one database carries, and which limit ends it."""
    head = ["store", *(f"ttl {duration(ttl)}: {what}" for ttl in TTLS for what in ("leases of one database", "limit"))]
    rows = []
    for name in STORES:
        row = [name]
        for ttl in TTLS:
            need = scenario(name, 1_000_000, ttl)
            row += [number(1_000_000 / need["of one database"]), need["first limit"]]
        rows.append(row)
    return table(head, rows)


def number(value):
    """Two significant digits: no figure here is more exact."""
    if isinstance(value, str):
        return value
    if value <= 0:
        return "–"
    return f"{value:.2g}" if value < 10 else f"{round(value, 2 - len(str(int(value)))):,.0f}"


def duration(seconds):
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


TABLES = {"bytes and times": bytes_and_times, "calls": calls, "grants": grants, "memory": memory, "ends": ends}
TABLES |= {f"{leases} leases, ttl {ttl}": lambda leases=leases, ttl=ttl: computed(leases, ttl) for leases, ttl in SCENARIOS}


def main():
    command = sys.argv[1:]
    if command not in ([], ["--check"], ["--write"]):
        sys.exit(__doc__.split("\n\n")[1])
    if not command:
        print("\n\n".join(f"<!-- table: {name} -->\n\n{make()}" for name, make in TABLES.items()))
        return
    page = PAGE.read_text()
    missing = [name for name in TABLES if f"<!-- table: {name} -->" not in page]
    if missing:
        sys.exit("docs/scaling.md has no place for these tables of bench/scaling.py: " + "; ".join(missing))

    def current(found):
        return f"<!-- table: {found[1]} -->\n\n{TABLES[found[1]]()}\n"

    wanted = re.sub(r"<!-- table: (.+?) -->\n(?:\n(?:\|.*\n)+)?", current, page)
    if command == ["--write"]:
        PAGE.write_text(wanted)
    elif wanted != page:
        sys.exit("docs/scaling.md has not the tables of bench/scaling.py: run `bench/scaling.py --write`, and review the diff")


if __name__ == "__main__":
    main()
