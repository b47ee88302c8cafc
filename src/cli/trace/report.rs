//! `flowspace trace report`.

mod drawn;

use super::critical_path::{Format, quoted, right, table};
use crate::cli::{Failure, output};
use crate::trace::critical::compat::Table as Rows;
use crate::trace::report::stats::Summary;
use crate::trace::report::{Change, Report, diff, report};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `flowspace trace report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Kineto trace, plain or gzip.
    pub file: PathBuf,
    /// Another trace: operators and kernels that differ in number or time.
    #[arg(long, value_name = "FILE")]
    pub diff: Option<PathBuf>,
    /// How many kernels, and how many differences, are listed.
    #[arg(long, value_name = "N", default_value = "10")]
    pub top: usize,
    /// Format on standard output; CSV has one row for each figure.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
    /// Draw what the device did as figures: STEM-running, STEM-idle, STEM-kernels, STEM-queues and STEM-bandwidth, each as SVG, PNG and PDF.
    #[arg(long, value_name = "STEM")]
    pub plot: Option<PathBuf>,
}

/// Computes and prints.
///
/// # Errors
/// [`Failure`]: a trace that cannot be read.
pub fn run(args: &ReportArgs) -> Result<i32, Failure> {
    // Each figure is a file in this folder.
    output::check(args.plot.iter().map(|stem| drawn::stem(stem, "running")).collect::<Vec<_>>().iter(), [])?;
    let rows = Rows::read(&args.file)?;
    let found = report(&rows, args.top);
    let mut changes = args.diff.as_deref().map(Rows::read).transpose()?.map(|other| diff(&rows, &other));
    if let Some(changes) = &mut changes {
        changes.truncate(args.top);
    }
    let text = match args.format {
        Format::Json => {
            let mut value = json!(found);
            if let Some(changes) = &changes {
                value["diff"] = json!(changes);
            }
            format!("{value:#}\n")
        }
        Format::Csv => csv(&found, changes.as_deref()),
        Format::Text => text(&found, changes.as_deref()),
    };
    crate::cli::print(&text);
    if let Some(stem) = &args.plot {
        let files = drawn::draw(&found, stem).map_err(|e| Failure::input(e.to_string()))?;
        if files.is_empty() {
            say!("no figure is drawn: the trace has no operations of a device");
        }
        files.iter().for_each(|file| say!("{}", file.display()));
    }
    Ok(0)
}

/// All figures as rows: analysis, what of, figure, value.
fn figures(r: &Report) -> Vec<(&'static str, String, &'static str, f64)> {
    let mut out = Vec::new();
    if let Some(t) = &r.temporal {
        let all = [("idle_us", t.idle_us), ("compute_us", t.compute_us), ("non_compute_us", t.non_compute_us)];
        out.extend(all.into_iter().chain([("kernel_us", t.kernel_us)]).map(|(f, v)| ("temporal", String::new(), f, v)));
    }
    for t in &r.kernel_types {
        out.push(("kernel_types", t.kernel_type.clone(), "sum_us", t.sum_us));
        out.push(("kernel_types", t.kernel_type.clone(), "percentage", t.percentage));
    }
    out.extend(r.overlap_percent.map(|p| ("overlap", String::new(), "percent", p)));
    for i in &r.idle {
        out.push(("idle", format!("stream {} {}", i.stream, i.category), "idle_us", i.idle_us));
    }
    let mut summary = |analysis: &'static str, of: String, s: &Summary| {
        let std = s.std.map(|v| ("std", v));
        let rest = [("min", s.min), ("q25", s.q25), ("q50", s.q50), ("q75", s.q75), ("max", s.max)];
        let all = [("count", s.count as f64), ("mean", s.mean)].into_iter().chain(std).chain(rest);
        out.extend(all.map(|(f, v)| (analysis, of.clone(), f, v)));
    };
    r.queues.iter().for_each(|s| summary("queue_length", format!("stream {}", s.of), &s.summary));
    r.bandwidth.iter().for_each(|s| summary("memory_bandwidth_gb_s", s.of.clone(), &s.summary));
    r.top.iter().for_each(|t| summary("kernel_us", t.name.clone(), &t.summary));
    let l = &r.launches;
    let all = [
        ("count", l.count as f64),
        ("cpu_us", l.cpu_us),
        ("gpu_us", l.gpu_us),
        ("delay_us", l.delay_us),
        ("delay_max_us", l.delay_max_us),
        ("short", l.short as f64),
        ("slow_calls", l.slow_calls as f64),
        ("long_delays", l.long_delays as f64),
    ];
    out.extend(all.into_iter().map(|(f, v)| ("launches", String::new(), f, v)));
    out
}

fn csv(r: &Report, changes: Option<&[Change]>) -> String {
    let mut out = String::from("analysis,of,figure,value\n");
    for (analysis, of, figure, value) in figures(r) {
        out.push_str(&format!("{analysis},{},{figure},{value}\n", quoted(&of)));
    }
    for c in changes.into_iter().flatten() {
        for (figure, value) in [
            ("first_count", c.count.0 as f64),
            ("second_count", c.count.1 as f64),
            ("first_us", c.us.0),
            ("second_us", c.us.1),
        ] {
            out.push_str(&format!("diff,{},{figure},{value}\n", quoted(&c.name)));
        }
    }
    out
}

fn text(r: &Report, changes: Option<&[Change]>) -> String {
    let mut out = String::new();
    if let Some(t) = &r.temporal {
        let mut all = table(&["device time", "us", "%"]);
        let rows = [("computes", t.compute_us), ("other work", t.non_compute_us), ("idle", t.idle_us)];
        for (name, us) in rows.into_iter().chain([("all", t.kernel_us)]) {
            // Operations that take no time have no shares of it.
            let percent = if t.kernel_us > 0.0 { 100.0 * us / t.kernel_us } else { 0.0 };
            all.add_row([name.to_owned(), us.to_string(), format!("{percent:.2}")]);
        }
        out.push_str(&right(all, &[1, 2]));
    }
    let mut all = table(&["running", "us", "%"]);
    for t in &r.kernel_types {
        all.add_row([t.kernel_type.clone(), t.sum_us.to_string(), t.percentage.to_string()]);
    }
    out.push_str(&right(all, &[1, 2]));
    if let Some(percent) = r.overlap_percent {
        out.push_str(&format!("communication hidden behind computation: {percent} %\n"));
    }
    let mut all = table(&["stream", "idle", "us", "ratio"]);
    for i in &r.idle {
        let ratio = i.ratio.map_or(String::new(), |v| v.to_string());
        all.add_row([i.stream.to_string(), i.category.to_owned(), i.idle_us.to_string(), ratio]);
    }
    out.push_str(&right(all, &[0, 2, 3]));
    let header = ["", "count", "mean", "std", "min", "25 %", "50 %", "75 %", "max"];
    let row = |of: String, s: &Summary| {
        let number = |v: f64| format!("{v:.3}");
        let std = s.std.map_or(String::new(), number);
        let rest = [s.min, s.q25, s.q50, s.q75, s.max].map(number);
        [of, s.count.to_string(), number(s.mean), std].into_iter().chain(rest).collect::<Vec<_>>()
    };
    let columns: Vec<usize> = (1..header.len()).collect();
    let mut series = |title: &str, rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let mut header = header;
            header[0] = title;
            let mut all = table(&header);
            rows.into_iter().for_each(|r| {
                all.add_row(r);
            });
            out.push_str(&right(all, &columns));
        }
    };
    series("queue of stream", r.queues.iter().map(|s| row(s.of.to_string(), &s.summary)).collect());
    series("memory, GB/s", r.bandwidth.iter().map(|s| row(s.of.clone(), &s.summary)).collect());
    let short = |name: &str| name.chars().take(70).collect::<String>();
    series("kernel, us", r.top.iter().map(|t| row(short(&t.name), &t.summary)).collect());
    let l = &r.launches;
    out.push_str(&format!(
        "{} launches: calls {} us, operations {} us, delays {} us (longest {}); {} operations shorter than their call, {} calls over 50 us, {} delays over 100 us\n",
        l.count, l.cpu_us, l.gpu_us, l.delay_us, l.delay_max_us, l.short, l.slow_calls, l.long_delays
    ));
    if let Some(changes) = changes {
        let mut all = table(&["differs", "count", "count of the other", "us", "us of the other"]);
        for c in changes {
            let numbers = [c.count.0.to_string(), c.count.1.to_string(), c.us.0.to_string(), c.us.1.to_string()];
            all.add_row([short(&c.name)].into_iter().chain(numbers).collect::<Vec<_>>());
        }
        out.push_str(&right(all, &[1, 2, 3, 4]));
    }
    out
}
