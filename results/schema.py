"""The record of one cell: what was run, what came out, under which conditions. Units are in the names."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 1

Measure = Literal["train", "time", "memory", "gradient"]
Status = Literal["ok", "not applicable", "failed", "killed", "out of memory", "timed out"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Cell(_Frozen):
    """The coordinates of one measurement in the grid of a suite."""

    suite: str
    preset: str
    dataset: str
    model: str
    method: str
    batch: int = Field(gt=0)
    seed: int = Field(ge=0)
    measure: Measure

    @property
    def key(self) -> str:
        """Readable and unique within a results folder; also the file name of the record."""
        parts = (self.measure, self.suite, self.preset, self.dataset, self.model, self.method)
        return "_".join(parts).replace("/", "-") + f"_b{self.batch}_s{self.seed}"


class Environment(_Frozen):
    """The conditions that are not part of the cell's definition but explain its figures."""

    python: str
    torch: str
    torchvision: str
    timm: str
    platform: str
    processor: str
    device: Literal["cpu", "cuda"]
    device_name: str
    threads: int
    allocator: str
    commit: str
    started_utc: str


class Point(_Frozen):
    """One point of a training curve. Losses are means since the last point; accuracies are percent."""

    step: int
    epoch: float
    train_loss: float
    test_loss: float | None = None
    test_accuracy: float | None = None


class TrainResult(_Frozen):
    kind: Literal["train"] = "train"
    test_accuracy: float = Field(ge=0, le=100, description="percent, top-1, after the last step")
    test_loss: float
    train_loss: float = Field(description="mean over the last tenth of the steps")
    steps: int
    train_images: int
    test_images: int
    seconds: float
    images_per_second: float
    curve: tuple[Point, ...]


class TimeResult(_Frozen):
    """Steps of exact, method, exact in turn: ratio = method / mean of the two exact beside it."""

    kind: Literal["time"] = "time"
    method_ms: tuple[float, ...] = Field(min_length=1)
    exact_ms: tuple[float, ...] = Field(min_length=1, description="the exact step before each method step")
    control_ms: tuple[float, ...] = Field(min_length=1, description="the exact step after each method step")
    ratio: float = Field(description="median of the paired ratios method / exact")
    ratio_low: float
    ratio_high: float
    control_ratio: float = Field(description="median exact / exact: the noise floor")
    control_low: float
    control_high: float
    memory_format: str
    exact_memory_format: str


class MemoryResult(_Frozen):
    kind: Literal["memory"] = "memory"
    saved_bytes: int | None = Field(description="unique storages kept for backward, no parameters or buffers")
    held_bytes: int | None = Field(description="allocator bytes alive after forward minus before")
    peak_bytes: int | None = Field(description="highest allocator bytes in one step above its start")
    process_peak_bytes: int | None = Field(description="highest resident size of the process")
    parameter_bytes: int
    input_bytes: int
    memory_format: str
    absent: str = Field(default="", description="why a figure is None")


class LayerGradient(_Frozen):
    """Errors of one parameter's gradient, squared norms relative to the squared norm of the exact gradient."""

    name: str
    kind: str
    elements: int
    relative_error: float = Field(description="E||method - exact||^2 / E||exact||^2")
    sgd_noise: float = Field(description="E||exact - mean exact||^2 / E||exact||^2 between batches")
    cosine: float


class GradientResult(_Frozen):
    kind: Literal["gradient"] = "gradient"
    batches: int
    cosine: float = Field(description="of the whole gradient, mean over batches")
    relative_error: float
    sgd_noise: float
    layers: tuple[LayerGradient, ...]


Result = Annotated[
    TrainResult | TimeResult | MemoryResult | GradientResult, Field(discriminator="kind")
]


class Record(_Frozen):
    """One JSON file. ``definition`` hashes all that may change the result; a cell that gave none says why."""

    schema_version: int = SCHEMA_VERSION
    cell: Cell
    definition: str
    config: dict[str, str | int | float | bool | None] = Field(description="what the hash was taken over")
    status: Status
    reason: str = ""
    result: Result | None
    environment: Environment

    @model_validator(mode="after")
    def _result_fits_status(self) -> "Record":
        if (self.status == "ok") != (self.result is not None):
            must = "must" if self.status == "ok" else "must not"
            raise ValueError(f"a record with status {self.status!r} {must} hold a result")
        if self.status != "ok" and not self.reason:
            raise ValueError(f"a record with status {self.status!r} must say why in reason")
        if self.result is not None and self.result.kind != self.cell.measure:
            raise ValueError(f"a {self.cell.measure} cell cannot hold a {self.result.kind} result")
        return self
