import pytest

from grinnder_cli.config.sizes import format_size, parse_size
from grinnder_cli.errors import ConfigError


@pytest.mark.parametrize(
    "text,nbytes",
    [
        ("33554432", 33554432),
        (33554432, 33554432),
        ("33554432B", 33554432),
        ("1KiB", 1024),
        ("1 KiB", 1024),
        ("512MiB", 512 << 20),
        ("8GiB", 8 << 30),
        ("8gib", 8 << 30),
        ("8GB", 8 * 10**9),
        ("1.5GiB", 3 << 29),
        ("2TiB", 2 << 40),
        ("8000000000.0", 8 * 10**9),
    ],
)
def test_sizes(text, nbytes):
    assert parse_size(text, "key") == nbytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "8G", "8GiBs", "-1", "1e9", "0x10", "٣", "8 GiB GiB", "1,5GiB", "0", "0.1B", "9EiB"]
)
def test_nonsense(text):
    with pytest.raises(ConfigError, match="^key="):
        parse_size(text, "key")


def test_larger_than_any_disk():
    with pytest.raises(ConfigError, match="below 2\\^63"):
        parse_size("99999999TiB", "key")


@pytest.mark.parametrize(
    "nbytes,text", [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1048575, "1.0 MiB"), (31.2 * 2**30, "31.2 GiB")]
)
def test_format(nbytes, text):
    assert format_size(nbytes) == text
