//! `flowspace study submit`: a planned study to Slurm, as an array of jobs with one task a part and a job behind it that merges.
//!
//! Slurm queues, places, and starts again what a lost node ran. Which parts are finished the files say, never Slurm: `sbatch --wait` returns
//! 0 for jobs that never ran, and jobs that it calls cancelled may have finished.

use super::args::{positive, quantity, time, whole};
use super::{Failure, output};
use crate::report::manifest::now;
use crate::spec::node::io_reason;
use crate::study::parts::{self, Plan};
use crate::units::{Bytes, Quantity};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What runs the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Arrays of jobs by sbatch.
    Slurm,
}

/// Arguments of `flowspace study submit`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct SubmitArgs {
    /// Folder of a planned study, which all nodes see.
    pub folder: PathBuf,
    /// What runs the parts.
    #[arg(long, value_name = "ENGINE", default_value = "slurm")]
    pub engine: Engine,
    /// Partition of the cluster.
    #[arg(long, value_name = "NAME", value_parser = word)]
    pub partition: Option<String>,
    /// Account that pays.
    #[arg(long, value_name = "NAME", value_parser = word)]
    pub account: Option<String>,
    /// Limit of a job. A part that needs longer is begun again where it was.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1h")]
    pub time: f64,
    /// Processors of a job: points solved at the same time.
    #[arg(long, value_name = "N", value_parser = positive, default_value = "8")]
    pub cpus: u64,
    /// Memory of a job; what the partition gives if left out.
    #[arg(long, value_name = "SIZE", value_parser = quantity::<Bytes>)]
    pub mem: Option<Bytes>,
    /// Most jobs that run at the same time.
    #[arg(long, value_name = "N", value_parser = positive, default_value = "64")]
    pub max_running: u64,
    /// Which parts: missing, all, or numbers such as 3,17,40-52. Parts that are finished end at once.
    #[arg(long, value_name = "PARTS", default_value = "missing")]
    pub parts: String,
    /// How often a part may go on after its limit.
    #[arg(long, value_name = "N", value_parser = whole, default_value = "20")]
    pub max_requeue: u64,
    /// Further option of sbatch, as `--sbatch-arg=--qos=low`.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub sbatch_arg: Vec<String>,
    /// Print the scripts and what would be called; write and submit nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// A name that a line of a script takes as it is.
fn word(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.,@+".contains(c);
    match !text.is_empty() && text.chars().all(fits) {
        true => Ok(text.to_string()),
        false => Err(format!("expected a name of letters, digits and _-.,@+, found {text:?}")),
    }
}

/// What was submitted: `submission.json`, a line for each time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Submission {
    submitted: String,
    engine: String,
    commands: Vec<Vec<String>>,
    jobs: Vec<String>,
}

const SUBMISSIONS: &str = "submission.json";
const WORK: &str = "work.sbatch";
const MERGE: &str = "merge.sbatch";
/// `MaxArraySize` of Slurm where it does not say.
const ARRAY: u64 = 1001;
/// Folders that belong to one machine on most clusters.
const LOCAL: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Submits a planned study.
///
/// # Errors
/// [`Failure`]: no planned study, another version, parts that are not there, no Slurm, or what Slurm says.
pub fn run(args: &SubmitArgs) -> Result<i32, Failure> {
    let plan = super::parts::open(&args.folder)?;
    let numbers = chosen(&plan, &args.parts)?;
    if numbers.is_empty() {
        say!("every part is finished: `flowspace study merge {}` joins them", args.folder.display());
        return Ok(0);
    }
    let folder = args.folder.canonicalize().map_err(|e| output::failed(&args.folder, &e))?;
    if LOCAL.iter().any(|local| folder.starts_with(local)) {
        say!("note: {} may be a folder of this machine alone; nodes must see it", folder.display());
    }
    let program = std::env::current_exe().map_err(|e| Failure::input(format!("internal error: {e}")))?;
    let scripts = Scripts { args, folder: &folder, program: &program, name: plan.study.name() };
    let largest = if args.dry_run { ARRAY } else { largest_array()? };
    let (work, merge) = (folder.join(WORK), folder.join(MERGE));
    let logs = folder.join("logs");
    if args.dry_run {
        super::print(&format!(
            "# {}\n{}\n# {}\n{}\n",
            work.display(),
            scripts.work(),
            merge.display(),
            scripts.merge()
        ));
    } else {
        output::write(&work, scripts.work())?;
        output::write(&merge, scripts.merge())?;
        fs::create_dir_all(&logs).map_err(|e| output::failed(&logs, &e))?;
    }
    let mut submission =
        Submission { submitted: now(), engine: "slurm".into(), commands: Vec::new(), jobs: Vec::new() };
    let mut submit = |command: Vec<String>| -> Result<String, Failure> {
        super::print(&format!("{}\n", command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")));
        let job = match args.dry_run {
            true => format!("JOB{}", submission.jobs.len() + 1),
            false => {
                let answer = called(&command)?;
                // Federations answer with the cluster behind the number.
                answer.trim().split(';').next().unwrap_or_default().to_string()
            }
        };
        submission.commands.push(command);
        submission.jobs.push(job.clone());
        Ok(job)
    };
    let mut arrays = Vec::new();
    for (offset, array) in arrays_of(&numbers, largest) {
        let mut command = scripts.sbatch("%A_%a");
        command.push(format!("--array={}%{}", parts::ranges(&array), args.max_running));
        command.extend([work.display().to_string(), offset.to_string()]);
        arrays.push(submit(command)?);
    }
    // Whatever the end of the parts: what is missing the merge finds out, and says.
    let mut command = scripts.sbatch("merge-%j");
    command.push(format!("--dependency=afterany:{}", arrays.join(":")));
    command.push(merge.display().to_string());
    submit(command)?;
    if !args.dry_run {
        let jobs = submission.jobs.join(", ");
        note(&folder, submission)?;
        super::print(&format!("{} parts in jobs {jobs}\n", numbers.len()));
    }
    Ok(0)
}

/// The parts that are asked for.
fn chosen(plan: &Plan, text: &str) -> Result<Vec<u64>, Failure> {
    let parts = plan.parts()?;
    match text {
        "missing" => Ok(plan.missing()?),
        "all" => Ok((0..parts).collect()),
        _ => {
            let wrong = |e| Failure::input(format!("--parts: {e}, missing or all"));
            let numbers = parts::numbers(text).map_err(wrong)?;
            match numbers.iter().find(|part| **part >= parts) {
                Some(part) => Err(parts::PartsError::NoPart { part: *part, parts }.into()),
                None => Ok(numbers),
            }
        }
    }
}

/// Numbers in arrays whose indices are below what Slurm takes: each with what its indices lack.
fn arrays_of(numbers: &[u64], largest: u64) -> Vec<(u64, Vec<u64>)> {
    let mut arrays: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for number in numbers {
        arrays.entry(number / largest * largest).or_default().push(number % largest);
    }
    arrays.into_iter().collect()
}

/// What is submitted.
struct Scripts<'a> {
    args: &'a SubmitArgs,
    folder: &'a Path,
    program: &'a Path,
    name: &'a str,
}

impl Scripts<'_> {
    /// How sbatch is called, up to what it submits. Paths stand here, where they need no quotes.
    fn sbatch(&self, log: &str) -> Vec<String> {
        // Slurm takes a per cent sign for its own.
        let logs = self.folder.join("logs").display().to_string().replace('%', "%%");
        let mut command = vec!["sbatch".to_string(), "--parsable".into(), format!("--output={logs}/{log}.log")];
        command.extend(self.args.sbatch_arg.iter().cloned());
        command
    }

    fn head(&self, name: &str, cpus: u64) -> String {
        let mut text = format!("#!/bin/bash\n#SBATCH --job-name={name}\n#SBATCH --ntasks=1 --cpus-per-task={cpus}\n");
        // Writing to a String cannot fail.
        let minutes = (self.args.time / 60.0).ceil().max(1.0);
        let _ = writeln!(text, "#SBATCH --time={minutes}");
        for (option, value) in [("partition", &self.args.partition), ("account", &self.args.account)] {
            if let Some(value) = value {
                let _ = writeln!(text, "#SBATCH --{option}={value}");
            }
        }
        text
    }

    /// One part: it ends below the limit of the job and asks to be queued again. The element of the array by its number in it: by the
    /// number of the job Slurm would queue the whole array again.
    fn work(&self) -> String {
        let [program, folder] = [self.program, self.folder].map(|path| quoted(&path.display().to_string()));
        let name = format!("flowspace-{}", safe(self.name));
        let mut text = self.head(&name, self.args.cpus);
        if let Some(mem) = self.args.mem {
            let _ = writeln!(text, "#SBATCH --mem={}M", (mem.base() / f64::from(1 << 20)).ceil());
        }
        // Without appending, Slurm empties the log of a job that it starts again.
        text.push_str("#SBATCH --requeue --open-mode=append\nset -u\n");
        let (jobs, budget, most) = (self.args.cpus, budget(self.args.time), self.args.max_requeue);
        let _ = write!(
            text,
            r#"part=$((SLURM_ARRAY_TASK_ID + ${{1:-0}}))
{program} study work {folder} --part "$part" --jobs {jobs} --time-budget {budget}s
rc=$?
if [ $rc = 75 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {most} ]; then
    # It ends this script.
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" && sleep 60
fi
exit $rc
"#
        );
        text
    }

    /// The merge; a search of the front that goes on is submitted again.
    fn merge(&self) -> String {
        let [program, folder] = [self.program, self.folder].map(|path| quoted(&path.display().to_string()));
        let mut text = self.head(&format!("flowspace-merge-{}", safe(self.name)), 1);
        let _ = write!(
            text,
            r"set -u
{program} study merge {folder} --wait 60s
rc=$?
if [ $rc = 75 ]; then
    {program} study submit {folder} {}
    rc=$?
fi
exit $rc
",
            self.again()
        );
        text
    }

    /// The options of this call, for the next round.
    fn again(&self) -> String {
        let SubmitArgs { partition, account, time, cpus, mem, max_running, max_requeue, sbatch_arg, .. } = self.args;
        let mut words = vec![
            "--time".to_string(),
            format!("{time}s"),
            "--cpus".into(),
            cpus.to_string(),
            "--max-running".into(),
            max_running.to_string(),
            "--max-requeue".into(),
            max_requeue.to_string(),
        ];
        for (option, value) in [("--partition", partition), ("--account", account)] {
            words.extend(value.iter().flat_map(|value| [option.to_string(), value.clone()]));
        }
        words.extend(mem.iter().flat_map(|mem| ["--mem".to_string(), format!("{}B", mem.base())]));
        words.extend(sbatch_arg.iter().map(|arg| format!("--sbatch-arg={arg}")));
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

/// Seconds of work of a job with this limit: a tenth less, of a minute at least and ten at most, and half of a short one.
fn budget(limit: f64) -> f64 {
    let spare = (0.1 * limit).clamp(60.0, 600.0);
    (limit - spare).max(0.5 * limit).round().max(1.0)
}

/// A name for a job.
fn safe(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:%,+@".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// What a command prints.
fn called(command: &[String]) -> Result<String, Failure> {
    let (program, args) = command.split_first().map_or(("", command), |(program, args)| (program.as_str(), args));
    let output = Command::new(program).args(args).output().map_err(|e| {
        Failure::input(format!(
            "{program} cannot be started: {}; it is there on the machines of a Slurm cluster (--dry-run prints what would be submitted)",
            io_reason(&e)
        ))
    })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Failure::input(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

/// The number that indices of an array are below.
fn largest_array() -> Result<u64, Failure> {
    let config = called(&["scontrol".to_string(), "show".into(), "config".into()])?;
    let stated = config.lines().filter_map(|line| line.split_once('=')).find(|(name, _)| name.trim() == "MaxArraySize");
    Ok(stated.and_then(|(_, value)| value.trim().parse().ok()).filter(|n| *n > 0).unwrap_or(ARRAY))
}

fn submissions(folder: &Path) -> Vec<Submission> {
    let text = fs::read_to_string(folder.join(SUBMISSIONS)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn note(folder: &Path, submission: Submission) -> Result<(), Failure> {
    let mut all = submissions(folder);
    all.push(submission);
    let line = |one: &Submission| serde_json::to_string(one).map(|line| line + "\n");
    let text: Result<String, _> = all.iter().map(line).collect();
    output::write(&folder.join(SUBMISSIONS), text.map_err(|e| Failure::input(format!("internal error: {e}")))?)
}

/// Jobs of a folder by their state, where Slurm knows some.
pub(super) fn queue(folder: &Path) -> BTreeMap<String, u64> {
    let jobs: Vec<String> = submissions(folder).into_iter().flat_map(|submission| submission.jobs).collect();
    let mut states = BTreeMap::new();
    for job in jobs {
        // It forgets jobs that ended a while ago, which is no error here.
        let listed =
            called(&["squeue".to_string(), "-h".into(), "-r".into(), "-j".into(), job, "-o".into(), "%T".into()]);
        for state in listed.unwrap_or_default().lines() {
            *states.entry(state.trim().to_lowercase()).or_default() += 1;
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for word in ["a", "", "a b", "it's", "$(x)", "--qos=low", "a\"b", "%A_%a"] {
            let shell = Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output().unwrap();
            assert_eq!(String::from_utf8(shell.stdout).unwrap(), word);
        }
        assert!(word("a b").is_err() && word("").is_err() && word("gpu,long").is_ok());
        assert_eq!(safe("a b/c"), "a-b-c");
    }

    #[test]
    fn indices_stay_below_the_largest() {
        assert_eq!(arrays_of(&[0, 3, 999], 1001), [(0, vec![0, 3, 999])]);
        assert_eq!(arrays_of(&[1, 9, 10, 25], 10), [(0, vec![1, 9]), (10, vec![0]), (20, vec![5])]);
    }

    #[test]
    fn work_ends_before_its_limit() {
        assert_eq!([60.0, 600.0, 3600.0, 86_400.0].map(budget), [30.0, 540.0, 3240.0, 85_800.0]);
    }
}
