//! What the program says of itself: completions of shells, man pages, version. All of it comes from the one definition of the
//! command line.

use super::{Cli, Failure, output, print};
use crate::solver;
use crate::spec::{nearest::nearest, node::io_reason};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::Shell as Generated;
use std::path::PathBuf;

/// Arguments of `flowspace completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum, value_name = "bash|zsh|fish")]
    pub shell: Shell,
}

/// Shells that completions are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// `flowspace completions bash > ~/.local/share/bash-completion/completions/flowspace`
    Bash,
    /// `flowspace completions zsh > DIR/_flowspace`, where DIR is one of $fpath
    Zsh,
    /// `flowspace completions fish > ~/.config/fish/completions/flowspace.fish`
    Fish,
}

/// Arguments of `flowspace man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for the page of each command; made if it does not exist. Without it the page of the program itself is printed.
    pub folder: Option<PathBuf>,
}

/// A mistake on the command line, told more helpfully than clap does: the nearest of the sub-commands where it knows none, and no advice to
/// take a misspelt option for a value.
pub fn clearer(mut mistake: clap::Error, typed: impl Iterator<Item = String>) -> clap::Error {
    match (mistake.kind(), mistake.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word)))
            if mistake.get(ContextKind::SuggestedSubcommand).is_none() =>
        {
            let mut command = Cli::command();
            for word in typed {
                if let Some(below) = command.find_subcommand(word) {
                    command = below.clone();
                }
            }
            let known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            if let Some(near) = nearest(word, &known) {
                mistake.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near.to_string()]));
            }
        }
        (ErrorKind::UnknownArgument, _) => {
            mistake.remove(ContextKind::Suggested);
        }
        _ => {}
    }
    mistake
}

/// Prints the completions of a shell.
///
/// # Errors
/// None; the signature is that of all commands.
pub fn completions(args: &CompletionsArgs) -> Result<i32, Failure> {
    let shell = match args.shell {
        Shell::Bash => Generated::Bash,
        Shell::Zsh => Generated::Zsh,
        Shell::Fish => Generated::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "flowspace", &mut text);
    print(&String::from_utf8_lossy(&text));
    Ok(0)
}

/// Prints or writes man pages.
///
/// # Errors
/// [`Failure`]: a folder that cannot be written.
pub fn man(args: &ManArgs) -> Result<i32, Failure> {
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        let failed = |e: std::io::Error| Failure::input(format!("cannot print the page: {}", io_reason(&e)));
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(failed)?;
        print(&String::from_utf8_lossy(&page));
        return Ok(0);
    };
    output::make_folder(folder)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(|e| output::failed(folder, &e))?;
    print(&format!("wrote the pages of {} commands to {}\n", pages(&Cli::command()), folder.display()));
    Ok(0)
}

/// Commands that have a page: all but those that are hidden.
fn pages(command: &clap::Command) -> usize {
    1 + command.get_subcommands().filter(|c| !c.is_hide_set()).map(pages).sum::<usize>()
}

/// The commit that the program was built from.
pub fn commit() -> &'static str {
    option_env!("FLOWSPACE_COMMIT").unwrap_or("unknown (built outside its repository)")
}

/// Version, commit and engines.
pub fn version() -> &'static str {
    static TEXT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    TEXT.get_or_init(|| {
        let commit = commit();
        format!("{}\ncommit {commit}\nengines: {}", env!("CARGO_PKG_VERSION"), solver::engines().join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_version_names_what_is_built_in() {
        assert!(version().starts_with(concat!(env!("CARGO_PKG_VERSION"), "\ncommit ")), "{}", version());
        assert_eq!(version().contains("CBC"), cfg!(feature = "cbc"), "{}", version());
        assert!(version().contains("shortest path"));
    }
}
