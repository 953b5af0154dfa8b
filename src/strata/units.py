"""Numbers as people read them."""


def bytes_text(count: int) -> str:
    """`count` bytes in binary units: 1536 -> '1.5 KiB'; exact below 1 KiB."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{value:.1f} {unit}"


def count_text(count: int) -> str:
    """`count` things in decimal units: 52_300_000 -> '52.3 M'; exact below 10,000."""
    if count < 10_000:
        return str(count)
    value = float(count)
    for unit in ("K", "M", "G", "T"):
        value /= 1000
        if value < 1000 or unit == "T":
            break
    return f"{value:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """A duration: 0.0123 -> '12 ms', 75 -> '1 min 15 s'."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
