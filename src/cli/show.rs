//! `flowspace show`: a file of the catalogue, to copy; or of what a chip's area, power and price are made.

use super::Failure;
use super::present::{align, plain, significant};
use crate::spec::catalogue::{self, Kind};
use crate::system::{Die, System};
use clap::{Args, ValueEnum};
use std::path::Path;

/// Arguments of `flowspace show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Name of a chip, memory, link, switch, stack, technology, system, workload or study (`flowspace list`); chips/NAME and the like where
    /// several kinds have the name. With --area: a system, by name or file.
    pub name: String,
    /// Area, power and price of the chips of a system, part by part; of chips that are summed from `area`.
    #[arg(long)]
    pub area: bool,
    /// Format on standard output of --area.
    #[arg(long, value_enum, default_value_t = Format::Text, requires = "area")]
    pub format: Format,
}

/// Formats of the parts of a chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for a person.
    Text,
    /// One JSON object.
    Json,
}

/// Prints the file with its references by name, so that a copy means the same in any folder.
///
/// # Errors
/// [`Failure`]: no such name; a system that is wrong, or whose chips state their price and power.
pub fn run(args: &ShowArgs) -> Result<i32, Failure> {
    if args.area {
        return area(&args.name, args.format);
    }
    let entry = catalogue::find(&args.name, None).map_err(|instead| {
        let no_name = "it is no name of the catalogue (`flowspace list`); a file of yours can be copied as it is";
        let instead = if instead.is_empty() { no_name.to_string() } else { instead };
        Failure::input(format!("{:?}: {instead}", args.name))
    })?;
    super::print(&entry.portable()?);
    Ok(0)
}

fn area(name: &str, format: Format) -> Result<i32, Failure> {
    if let Ok(entry) = catalogue::find(name, None)
        && entry.kind != Kind::System
        && !Path::new(name).exists()
    {
        let kind = entry.kind.word();
        return Err(Failure::input(format!(
            "{name:?}: it is a {kind}, and a system is due: interfaces to memory and links take a part of the die"
        )));
    }
    let system = System::build(&System::load(Path::new(name))?)?;
    let Some(die) = Die::of(&system) else {
        let chip = &system.chip.0.name;
        return Err(Failure::input(format!(
            "{name:?}: the chip {chip} states its price and power; only one with `area` is summed from parts (docs/codesign.md)"
        )));
    };
    match format {
        Format::Text => super::print(&text(&die)),
        Format::Json => {
            let mut json = serde_json::to_value(&die).map_err(|e| Failure::input(e.to_string()))?;
            json["package_w"] = die.package_w().into();
            super::print(&format!("{json:#}\n"));
        }
    }
    Ok(0)
}

/// The parts of a die, what it draws and what it costs.
pub(super) fn text(die: &Die) -> String {
    let mut table = plain();
    table.set_header(["part", "mm2", "share", "W"]);
    for part in die.parts.iter().filter(|part| part.mm2 > 0.0 || part.w > 0.0) {
        let share = format!("{:.1} %", 100.0 * part.mm2 / die.mm2);
        let w = if part.w > 0.0 { significant(part.w) } else { String::new() };
        table.add_row([part.name.to_string(), format!("{:.1}", part.mm2), share, w]);
    }
    table.add_row(["static".to_string(), String::new(), String::new(), significant(die.static_w)]);
    table.add_row(["die".to_string(), format!("{:.1}", die.mm2), String::new(), significant(die.chip_w)]);
    table.add_row(["memory stacks".to_string(), String::new(), String::new(), significant(die.stacks_w)]);
    align(&mut table, &[1, 2, 3]);
    let limit = if die.too_large() { format!("infeasible: {}\n", die.beyond_limit()) } else { String::new() };
    format!(
        "{table}\n{limit}{}, limit {} mm2: {:.1} dies of a wafer, {:.1} % good, ${:.0} each; package and test ${:.0}; chip ${:.0}; {} W with its memory\n",
        die.technology,
        die.most_mm2,
        die.dies_per_wafer,
        100.0 * die.good,
        die.die_usd,
        die.package_usd,
        die.chip_usd,
        significant(die.package_w()),
    )
}
