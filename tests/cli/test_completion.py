"""`eval "$(grinnder -sc install=bash)"` in a real bash."""

import shutil
import subprocess
import sys

import pytest
from grinnder_process import environment

SCRIPT = """
set -e
eval "$(grinnder -sc install=bash)"
ask() { COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; words=($COMP_LINE); COMP_CWORD=$((${#words[@]} - 1))
        [ "${COMP_LINE: -1}" = " " ] && COMP_CWORD=$((COMP_CWORD + 1))
        COMPREPLY=(); hydra_bash_completion; echo "${COMPREPLY[@]}"; }
ask "grinnder tr"
ask "grinnder train data"
ask "grinnder train dataset=ka"
ask "grinnder train model.dro"
ask "grinnder plan cache=l"
ask "grinnder bench k"
ask "grinnder bench kernels bench.sec"
ask "grinnder tables "
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_commands_groups_options_keys(tmp_path):
    program = tmp_path / "bin" / "grinnder"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom grinnder_cli.main import main\nsys.exit(main())\n")
    program.chmod(0o755)
    env = environment(tmp_path)
    env["PATH"] = f"{program.parent}:{env['PATH']}"
    done = subprocess.run(["bash", "-c", SCRIPT], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "train"
    assert "dataset=" in lines[1]
    assert lines[2] == "dataset=karate"
    assert "model.dropout=" in lines[3]
    assert lines[4] == "cache=lru_layer"
    assert lines[5] == "kernels"
    assert lines[6] == "bench.seconds="
