"""Says what this machine's processor is: whatever depends on it asks here."""

from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")  # Linux' words on the processor; elsewhere it is missing
_NUMBERS = ("vendor_id", "cpu family", "model")
_INT8 = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")  # x86's three, and Arm's


def facts() -> dict[str, str]:
    """Returns what Linux says of the first processor, by name; empty elsewhere."""
    try:
        text = CPUINFO.read_text("utf-8", "replace")
    except OSError:
        return {}
    said: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        said.setdefault(name.strip(), value.strip())
    return said


def flags() -> frozenset[str]:
    """Returns the names of the processor's instruction sets; empty where Linux does not say."""
    said = facts()
    return frozenset((said.get("flags") or said.get("Features") or "").split())


def name() -> str:
    """Returns maker, family and model, such as `AuthenticAMD 25 17`; "" if unknown."""
    said = facts()
    return " ".join(said[number] for number in _NUMBERS if number in said)


def has_int8_products() -> bool:
    """Returns whether this processor has instructions for products in int8, which are fast."""
    return not flags().isdisjoint(_INT8)
