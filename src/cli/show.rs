//! `flowspace show`: a file of the catalogue, to copy.

use super::Failure;
use crate::spec::catalogue;
use clap::Args;

/// Arguments of `flowspace show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Name of a chip, memory, link, switch, stack, system, workload or study (`flowspace list`); chips/NAME and the like where
    /// several kinds have the name.
    pub name: String,
}

/// Prints the file with its references by name, so that a copy means the same in any folder.
///
/// # Errors
/// [`Failure`]: no such name.
pub fn run(args: &ShowArgs) -> Result<i32, Failure> {
    let entry = catalogue::find(&args.name, None).map_err(|instead| {
        let no_name = "it is no name of the catalogue (`flowspace list`); a file of yours can be copied as it is";
        let instead = if instead.is_empty() { no_name.to_string() } else { instead };
        Failure::input(format!("{:?}: {instead}", args.name))
    })?;
    super::print(&entry.portable()?);
    Ok(0)
}
