"""A run in the emulator: rows, faults that cost their item, a second start, kits, reports and their comparison."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import zipfile

import pytest

from blackwell_matmul import cli
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.cli.first_light import cases, comparing, item_tasks, kit, run_report, running_items
from blackwell_matmul.cli.first_light.cases import Case, without_paths
from blackwell_matmul.compiler import Bundle
from blackwell_matmul.hardware.gpus import gpu_named

CASE = Case("v1", 100, 72, 40)
GPU = gpu_named("B200")


def nothing(step: object) -> None:
    """A step, or a line, that nobody reads."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a kit with one case, prepared as `kit.prepare` prepares all."""
    folder = tmp_path_factory.mktemp("kit")
    entry = item_tasks.prepare(nothing, vars(CASE), "sm_100a", str(folder))
    none = {"timelines": [], "speeds": [], "refused": {}}
    record = {"format": 2, "gpu": "B200", "arch": "sm_100a", "cases": [entry], **none}
    (folder / kit.KIT).write_text(json.dumps(record))
    return kit.opened_folder(folder)


def values_alone(run, monkeypatch):
    every = [item for item in run.items() if item.stage == "values"]
    monkeypatch.setattr(running_items.FirstLightRun, "items", lambda self: iter(every))
    return run


def test_a_case_holds_and_a_second_start_does_nothing(made, tmp_path, monkeypatch):
    run = values_alone(running_items.FirstLightRun(made, GPU, "emulator", tmp_path, 5, nothing), monkeypatch)
    run.run()
    (row,) = run.rows
    assert (row["status"], row["item"]) == ("held", "v1 fp16 100x72x40")
    again = running_items.FirstLightRun(made, GPU, "emulator", tmp_path, 5, lambda told: pytest.fail(told))
    again.run()
    assert list(again.rows) == [row] and again.missing() == 0


def test_a_wrong_kernel_a_crash_and_an_endless_one_cost_their_items(made, tmp_path, monkeypatch):
    entry = made.cases[0]
    endless = tmp_path / "endless"
    bundle = Bundle.load(made.bundle(entry))
    label = bundle.ptx.index("{", bundle.ptx.index(".entry")) + 1
    looped = bundle.ptx[:label] + "\nEVER:\n\tbra EVER;\n" + bundle.ptx[label:]
    dataclasses.replace(bundle, ptx=looped).save(endless)
    task = {"do": f"{kit.KIT_TASKS}:value", "device": "emulator", "case": entry["case"]}
    right = {"expected": entry["digest"], "folder": str(made.bundle(entry))}
    items = [
        running_items.Item("values", "wrong", {**task, **right, "expected": "other bits"}),
        running_items.Item("values", "crash", {"do": f"{__name__}:crash"}),
        running_items.Item("values", "endless", {**task, **right, "folder": str(endless)}),
        running_items.Item("values", "right", {**task, **right}),
    ]
    monkeypatch.setattr(running_items.FirstLightRun, "items", lambda self: iter(items))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]))
    run = running_items.FirstLightRun(made, GPU, "emulator", tmp_path, 5, nothing)
    run.run()
    found = {row["item"]: (row["status"], row["told"]) for row in run.rows}
    assert found["wrong"] == ("not held", "other bits than in the emulator")
    assert found["crash"][0] == "failed" and "SIGKILL" in found["crash"][1]
    assert found["endless"][0] == "not held" and "endless" in found["endless"][1]
    assert found["right"][0] == "held"


def crash(step: object) -> dict[str, object]:
    """A task whose process dies."""
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def test_without_time_nothing_begins(made, tmp_path):
    run = running_items.FirstLightRun(made, GPU, "emulator", tmp_path, 1e-9, nothing)
    run.run()
    assert not list(run.rows) and run.missing() > 3


def test_a_disk_that_is_full_is_a_sentence(made, tmp_path, monkeypatch):
    def full(self, row):
        raise InputError("cannot keep rows in rows.jsonl: No space left on device; choose another file.")

    run = values_alone(running_items.FirstLightRun(made, GPU, "emulator", tmp_path, 5, nothing), monkeypatch)
    monkeypatch.setattr(type(run.rows), "add", full)
    with pytest.raises(InputError, match="No space left"):
        run.run()


def test_a_report_that_does_not_fit_on_the_disk_is_a_sentence(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_report, "write_whole", full)
    with pytest.raises(InputError, match=r"cannot write the report to .*: No space left on device; every item is kept"):
        run_report.save(run_report.record([], GPU, True, 0, "first-light", {}), tmp_path)


# --- kits


def test_a_kit_survives_its_file(made, tmp_path):
    kit.pack(made.folder, tmp_path / "kit.zip")
    with kit.unpacked(tmp_path / "kit.zip") as found:
        assert found.cases == made.cases and found.bundle(found.cases[0]).is_dir()
        with pytest.raises(InputError, match=r"made for a B200 \(sm_100a\) and this GPU is H200"):
            kit.require_for(found, gpu_named("H200"), "kit.zip")


@pytest.mark.parametrize("content", [b"", b"no zip", "zip without a record", "record of another kind"])
def test_a_broken_kit_is_refused(tmp_path, content, capsys):
    file = tmp_path / "kit.zip"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        with zipfile.ZipFile(file, "w") as packed:
            packed.writestr("kit.json" if "another" in content else "other", "[1]")
    assert cli.main(["first-light", str(file), "--device", "emulator", "-o", str(tmp_path / "out")]) == 2
    assert "kit" in capsys.readouterr().err


def test_a_kit_has_every_kernel_of_its_gpu():
    values = list(cases.value_cases("sm_100a"))
    assert {case.kernel for case in values} == {*cases.kernels("sm_100a"), "s0", "s1", "s2"}
    assert len({case.folder for case in values}) == len(values)
    assert {case.dtype for case in values} == {"fp16", "bf16", "e4m3", "mxfp8", "mxfp4", "nvfp4"}
    assert "s2 nvfp4 128x256x256" in map(str, cases.timeline_cases("sm_100a", True))
    assert not cases.scaled_kernels("sm_90a") and not list(cases.speed_cases("sm_90a"))


@pytest.mark.parametrize("dtype", ["mxfp8", "nvfp4"])
def test_a_block_scaled_case_holds_and_a_wrong_one_does_not(tmp_path, dtype):
    case = Case("s0", 100, 72, 96, dtype)
    entry = item_tasks.prepare(nothing, vars(case), "sm_100a", str(tmp_path))
    given = {"case": entry["case"], "folder": str(tmp_path / entry["folder"]), "device": "emulator"}
    found = item_tasks.value(nothing, expected=entry["digest"], **given)
    assert found["held"], found["told"]
    found = item_tasks.value(nothing, expected="other bits", **given)
    assert (found["held"], found["told"]) == (False, "other bits than in the emulator")


def test_a_timeline_that_cannot_be_compiled_is_a_row(made, tmp_path):
    refused = {"timelines: v1 fp16 128x256x256": "a reason."}
    run = running_items.FirstLightRun(dataclasses.replace(made, refused=refused), GPU, "emulator", tmp_path, 5, nothing)
    (found,) = (item for item in run.items() if item.why_not)
    assert (found.stage, found.name, found.why_not) == ("timelines", "v1 fp16 128x256x256", "a reason.")


# --- reports


def rows(value: float = 100.0, status: str = "held") -> list[dict[str, object]]:
    measured = {
        "what": "fence", "parameters": "32 threads", "value": value, "unit": "cycles", "spread": 1.0, "figure": "",
        "expected": 100.0, "how": "assumed", "held": True,
    }  # fmt: skip
    ladder = {"time_us": 2.0, "tflops": 600.0, "cublas_tflops": 650.0, "percent_of_cublas": 92.3, "predicted_us": 2.1}
    return [
        {"stage": "values", "item": "v1", "status": status, "told": "correct <exact>"},
        {"stage": "micro", "item": "fences", "status": "held", "told": "1 value", "rows": [measured]},
        {"stage": "ladder", "item": "v1 8192", "status": "held", "told": "correct", **ladder},
    ]


def test_the_page_says_what_was_emulated_and_what_did_not_hold(tmp_path):
    made = run_report.record(
        rows(status="not held"), GPU, True, 3, "blackwell-matmul first-light", {"versions": {"torch": "2"}}
    )
    page = run_report.save(made, tmp_path).read_text()
    assert "EMULATED" in page and "What did not hold" in page and "correct &lt;exact&gt;" in page
    assert page.count("<svg") == 2 and "3</b>left" in page
    assert run_report.load(tmp_path)["counts"] == {"not held": 1, "failed": 0, "not run": 0, "measured": 0, "held": 2}
    real = run_report.page(run_report.record(rows(), GPU, False, 0, "", {}))
    assert "EMULATED" not in real and "Nothing: all that ran" in real


def test_reports_are_compared_value_by_value(tmp_path, capsys):
    for name, each in (("a", rows()), ("b", rows(250.0, "failed"))):
        (tmp_path / name).mkdir()
        run_report.save(run_report.record(each, GPU, False, 0, "", {}), tmp_path / name)
    first, second = (run_report.load(tmp_path / name) for name in "ab")
    least_alike = comparing.pairs(first, second)[0]
    assert (least_alike.what, least_alike.ratio) == ("fence, 32 threads", 2.5)
    assert comparing.changed(first, second) == [("values: v1", "held", "failed")]
    assert cli.main(["first-light", "compare", str(tmp_path / "a"), str(tmp_path / "b" / "report.json")]) == 0
    assert " 2.50  fence, 32 threads: 100 and 250 cycles" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--minutes", "soon"], "--minutes is 'soon'"), (["--device", "tpu"], "it must be gpu or emulator"),
        (["compare", "a"], "compare takes two reports"), (["a.zip", "b.zip"], "takes one kit"),
        (["--prepare", "B2"], "B2"), (["compare", "a", "b"], "no report of first-light"),
    ],
)  # fmt: skip
def test_bad_words_are_a_sentence(words, told, capsys):
    assert cli.main(["first-light", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("the cache /mnt/ann/.cache/x is writable", "the cache x is writable"),
        (r"C:\data\ann\kit.zip is missing", "kit.zip is missing"),
        ("12/16 CTAs, 3 bytes/cycle", "12/16 CTAs, 3 bytes/cycle"),
        ("see https://docs.nvidia.com/cuda/a.html", "see https://docs.nvidia.com/cuda/a.html"),
    ],
)  # fmt: skip
def test_no_path_leaves_the_machine(text, kept):
    assert without_paths(text) == kept
