"""Draws the delays by carrier and hour, and the effect of rain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,unused-ignore]

# A mean of fewer arrivals is left out.
FEWEST = 20
# Minutes at which the colours end; nearly all means lie within.
_STRONGEST = 40
_INK, _FAINT = "#1f2933", "#7b8794"
_DRY, _WET = "#d08c2f", "#2467a8"


def draw(found: pandas.DataFrame, names: dict[str, str], file: Path) -> None:
    """Draw the query's result (columns as in :mod:`bench.pipeline.data`) into a PNG file, making its folder."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "axes.edgecolor": "#cbd2d9",
    }
    with pyplot.rc_context(style):
        figure = pyplot.figure(figsize=(12, 9.4), dpi=120, facecolor="white")
        grid = figure.add_gridspec(
            2, 2, height_ratios=(2.35, 1), width_ratios=(1, 0.022), left=0.2, right=0.94, top=0.875, bottom=0.075,
            hspace=0.2, wspace=0.03,
        )  # fmt: skip
        above = figure.add_subplot(grid[0, 0])
        below = figure.add_subplot(grid[1, 0])
        hours = list(range(int(found["hour"].min()), int(found["hour"].max()) + 1))
        arrived = found[found["arrived"] > 0]
        first = int(arrived["hour"].min())
        hours = [hour for hour in hours if hour >= first]
        image = _delays(above, found, names, hours)
        bar = figure.colorbar(image, cax=figure.add_subplot(grid[0, 1]), extend="both")
        bar.set_label("minutes late (red) or early (blue)")
        bar.outline.set_visible(False)
        _rain(below, found, hours)
        figure.text(
            0.03,
            0.955,
            "Flights from New York in 2013: the later in the day, the later they land",
            size=17,
            weight="bold",
        )
        figure.text(
            0.03,
            0.92,
            "Mean arrival delay in minutes by carrier and scheduled hour of departure. "
            f"{found['flights'].sum():,} flights, of which {found['arrived'].sum():,} arrived; "
            f"empty: fewer than {FEWEST} arrivals.",
            size=10.5,
            color=_FAINT,
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)
        pyplot.close(figure)


def _delays(axes: Any, found: pandas.DataFrame, names: dict[str, str], hours: list[int]) -> Any:
    """Draw carriers by number of flights; each cell shows its mean."""
    means = (found["minutes"] / found["arrived"]).where(found["arrived"] >= FEWEST)
    table = found.assign(mean=means).pivot(index="carrier", columns="hour", values="mean")
    flights = found.groupby("carrier")["flights"].sum().sort_values(ascending=False)
    table = table.reindex(index=flights.index, columns=hours)
    image = axes.imshow(table.to_numpy(), cmap="RdBu_r", vmin=-_STRONGEST, vmax=_STRONGEST, aspect="auto")
    for row, (_, values) in enumerate(table.iterrows()):
        for column, value in enumerate(values):
            if value == value:  # not missing
                colour = "white" if abs(value) > 0.68 * _STRONGEST else _INK
                # Never "-0".
                axes.text(
                    column, row, f"{round(value) + 0}", ha="center", va="center", size=8.5, color=colour
                )
    axes.set_xticks(range(len(hours)), [f"{hour}" for hour in hours])
    axes.set_yticks(
        range(len(flights)),
        [f"{names.get(carrier, '')}  {carrier}" for carrier in flights.index],
    )
    axes.set_xticks([place + 0.5 for place in range(len(hours) - 1)], minor=True)
    axes.set_yticks([place + 0.5 for place in range(len(flights) - 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image


def _rain(axes: Any, found: pandas.DataFrame, hours: list[int]) -> None:
    """Draw all carriers together, with and without rain."""
    by_hour = found.groupby("hour").sum(numeric_only=True).reindex(hours)
    dry = (by_hour["minutes"] - by_hour["wet_minutes"]) / (by_hour["arrived"] - by_hour["wet_arrived"])
    wet = by_hour["wet_minutes"] / by_hour["wet_arrived"].where(by_hour["wet_arrived"] >= FEWEST)
    for values, colour, label in ((wet, _WET, "in the rain"), (dry, _DRY, "dry")):
        axes.plot(range(len(hours)), values, color=colour, linewidth=2.2, marker="o", markersize=4)
        place = max(index for index, value in enumerate(values) if value == value)
        axes.annotate(
            label,
            (place, values.iloc[place]),
            (8, 0),
            textcoords="offset points",
            color=colour,
            weight="bold",
            va="center",
        )
    axes.axhline(0, color="#cbd2d9", linewidth=1, zorder=0)
    axes.set_xlim(-0.5, len(hours) - 0.5)
    axes.set_xticks(range(len(hours)), [f"{hour}" for hour in hours])
    axes.set_xlabel("scheduled hour of departure")
    axes.set_ylabel("mean delay, min")
    axes.set_title("All carriers, by the weather where they departed", loc="left", size=11, weight="bold")
    axes.grid(axis="y", color="#eef1f4")
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
