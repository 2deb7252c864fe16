"""Files of state are replaced as a whole; nothing is written through what somebody has put beside them."""

import os
import stat
from pathlib import Path

import pytest

from fleet.service.binding import prepare
from fleet.service.files import make_directories
from xds_server.state.whole_file import read_whole, write_whole


def test_link_next_to_the_file_is_not_followed(tmp_path: Path) -> None:
    other, path = tmp_path / "other", tmp_path / "state"
    other.write_text("not ours")
    (tmp_path / "state.new").symlink_to(other)
    write_whole(path, b"content")
    assert other.read_text() == "not ours"
    assert path.read_bytes() == b"content"
    assert not path.is_symlink()


def test_leftover_of_a_crash_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "state.new").write_text("half a li")
    write_whole(tmp_path / "state", b"content")
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("umask", "mode"), [(0o777, 0o700), (0o077, 0o700), (0o027, 0o750), (0, 0o750)])
def test_no_umask_closes_a_file_or_a_directory_to_its_owner(tmp_path: Path, umask: int, mode: int) -> None:
    path = tmp_path / "above" / "beside" / "state"
    before = os.umask(umask)
    try:
        prepare("xds.address", f"unix:{path}.sock")
        write_whole(path, b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == mode
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) & 0o700 == 0o700


def test_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    make_directories(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o500
    tmp_path.chmod(0o700)


def test_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert read_whole(path, 4) is None
    path.write_bytes(b"123456")
    assert read_whole(path, 4) == b"12345"
    with pytest.raises(OSError, match="directory"):
        read_whole(tmp_path, 4)
