//! The commands that documents show: parsed always, run where their files are shipped.

use super::document;
use super::source::Sources;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use flowspace::cli::Cli;

/// What is wrong with a command; it is run where everything it needs is there.
pub fn fault(command: &str, shown: bool, sources: &mut Sources) -> Option<String> {
    let mut words = match split(command) {
        Ok(words) => words,
        Err(fault) => return Some(format!("{command}: {fault}")),
    };
    let target = words.iter().position(|w| w == ">").map(|at| words.split_off(at)).and_then(|mut rest| rest.pop());
    // An ellipsis says that more may follow.
    if words.iter().any(|w| w.contains("...")) {
        return None;
    }
    if let Err(error) = Cli::try_parse_from(words.iter().map(|w| w.trim_matches(['[', ']'])))
        && error.use_stderr()
    {
        // In a sentence a command may be cut short, and name the alternatives of a value.
        let cut_short =
            error.kind() == ErrorKind::MissingRequiredArgument || words.last().is_some_and(|w| w.starts_with("--"));
        let any_value = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation)
            && words.iter().any(|w| w.contains('|') || is_placeholder(w));
        return (shown || !(cut_short || any_value)).then(|| format!("{command}: {error}"));
    }
    if !shown && !words.iter().any(|w| w.contains('/')) {
        return None;
    }
    match sources.needs(&words) {
        Err(missing) => return Some(format!("{command}: there is no {missing}")),
        Ok(false) => return None,
        Ok(true) => {}
    }
    let output = sources.run(command, &words);
    // 2: some points have no plan, or a class is worse than its bound; the program has answered.
    let fault = (output.code != 0 && output.code != 2)
        .then(|| format!("{command}: exit code {}: {}", output.code, output.stderr));
    if let Some(target) = target {
        sources.keep(&target, &output.stdout);
    }
    if shown {
        sources.shown(command);
    }
    fault
}

/// A word in capitals, for which the reader puts something.
pub fn is_placeholder(word: &str) -> bool {
    matches!(word, "W" | "S")
        || word.split(['/', '.', '-', ':']).any(|p| p.len() > 1 && p.chars().all(|c| c.is_ascii_uppercase()))
}

/// Options that no sub-command has.
pub fn unknown_options(text: &str) -> Vec<String> {
    let mut known = vec!["--help".to_string(), "--version".into()];
    collect(&Cli::command(), &mut known);
    // Of cargo and of our scripts.
    known.extend(["--features", "--write", "--full"].map(String::from));
    let words = document::options(text).into_iter();
    words
        .filter(|(_, word)| !known.contains(&word.split('=').next().unwrap_or(word).to_string()))
        .map(|(line, word)| format!("{line}: no command has an option {word}"))
        .collect()
}

fn collect(command: &clap::Command, known: &mut Vec<String>) {
    known.extend(command.get_arguments().filter_map(|a| a.get_long()).map(|name| format!("--{name}")));
    command.get_subcommands().for_each(|sub| collect(sub, known));
}

/// Words of a command as a shell sees them: quotes of both kinds, nothing else.
pub fn split(command: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if quote.is_some() { Err("a quote is not closed".into()) } else { Ok(words) }
}
