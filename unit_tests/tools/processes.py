"""The processes of a running command, as /proc shows them."""


def environment_of(process):
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    except OSError:
        return {}


def descendants(process):
    try:
        with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        return []
    return children + [further for child in children for further in descendants(child)]


def ranks_of(launcher):
    """{rank: process}"""
    ranks = {}
    for process in descendants(launcher):
        rank = environment_of(process).get(b"PMIX_RANK")
        if rank is not None:
            ranks.setdefault(int(rank), process)
    return ranks


def lives(process):
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
