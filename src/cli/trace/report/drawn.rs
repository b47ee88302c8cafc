//! The figures of a report: what ran together, idle time by cause, the kernels that took longest, queues and bandwidths.

use crate::report::plot::{PlotError, Series, StackedBars};
use crate::trace::critical::names::short;
use crate::trace::report::Report;
use crate::trace::report::stats::Summary;
use std::path::{Path, PathBuf};

/// Most bars of a figure: more cannot be read.
const MOST: usize = 40;

/// One series of a figure, and its value for each bar.
fn series(name: &str, values: impl Iterator<Item = f64>) -> Series {
    Series { name: name.into(), values: values.take(MOST).collect() }
}

/// A figure without marks; `bars` are the names of the bars.
fn figure(title: &str, y_label: &str, bars: impl Iterator<Item = String>, series: Vec<Series>) -> StackedBars {
    let (title, y_label) = (title.into(), y_label.into());
    StackedBars { title, y_label, categories: bars.take(MOST).collect(), series, ..StackedBars::default() }
}

/// Means, and what the largest values are above them.
fn spread<'s>(title: &str, y_label: &str, of: impl Iterator<Item = (String, &'s Summary)>) -> StackedBars {
    let (names, of): (Vec<String>, Vec<&Summary>) = of.unzip();
    let above = series("from the mean to the largest", of.iter().map(|s| (s.max - s.mean).max(0.0)));
    let all = vec![series("mean", of.iter().map(|s| s.mean)), above];
    figure(title, y_label, names.into_iter(), all)
}

/// The figures of a report, each with the end of its files' names; none for what the trace has nothing of.
pub(super) fn figures(r: &Report) -> Vec<(&'static str, StackedBars)> {
    let idle = r.temporal.as_ref().map(|t| ("idle".to_owned(), t.idle_us / 1e3));
    let running: Vec<(String, f64)> =
        r.kernel_types.iter().map(|t| (t.kernel_type.to_lowercase(), t.sum_us / 1e3)).chain(idle).collect();
    let mut streams: Vec<i64> = r.idle.iter().map(|i| i.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    let waits = ["host_wait", "kernel_wait", "other"].map(|category| {
        let of = |stream: &i64| r.idle.iter().find(|i| i.stream == *stream && i.category == category);
        series(&category.replace('_', " "), streams.iter().map(|s| of(s).map_or(0.0, |i| i.idle_us / 1e3)))
    });
    let kernel = |name: &str| short(name).chars().take(50).collect::<String>();
    let all = [
        (
            "running",
            figure(
                "What runs on the device",
                "time, ms",
                running.iter().map(|x| x.0.clone()),
                vec![series("time", running.iter().map(|x| x.1))],
            ),
        ),
        (
            "idle",
            figure("Idle time of streams", "time, ms", streams.iter().map(|s| format!("stream {s}")), waits.into()),
        ),
        (
            "kernels",
            figure(
                "Kernels that took longest",
                "time, ms",
                r.top.iter().map(|t| kernel(&t.name)),
                vec![series("time", r.top.iter().map(|t| t.sum_us / 1e3))],
            ),
        ),
        (
            "queues",
            spread(
                "Operations that wait on a stream",
                "operations",
                r.queues.iter().map(|s| (format!("stream {}", s.of), &s.summary)),
            ),
        ),
        (
            "bandwidth",
            spread("Bandwidth of copies and fills", "GB/s", r.bandwidth.iter().map(|s| (s.of.clone(), &s.summary))),
        ),
    ];
    all.into_iter().filter(|(_, f)| !f.categories.is_empty()).collect()
}

/// The stem of a figure's files.
pub(super) fn stem(stem: &Path, of: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(format!("-{of}"));
    PathBuf::from(name)
}

/// Draws all, and names the files.
///
/// # Errors
/// [`PlotError`]: a file that cannot be written.
pub(super) fn draw(r: &Report, to: &Path) -> Result<Vec<PathBuf>, PlotError> {
    let mut files = Vec::new();
    for (of, figure) in figures(r) {
        files.extend(figure.draw(&stem(to, of))?);
    }
    Ok(files)
}
