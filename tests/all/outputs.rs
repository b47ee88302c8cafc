//! What commands write, and where they refuse to.

use super::scratch::Scratch;
use std::fs;
use std::process::{Command, Stdio};

const POINT: [&str; 5] = ["map", "--workload", "w.yaml", "--system", "s.yaml"];

/// A folder with the small workload and a system of files in it.
fn folder(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/errors/base");
    for (from, to) in [
        ("workload.yaml", "w.yaml"),
        ("system.yaml", "s.yaml"),
        ("chip.yaml", "chip.yaml"),
        ("memory.yaml", "memory.yaml"),
        ("link.yaml", "link.yaml"),
        ("llama.yaml", "llama.yaml"),
        ("gpu.yaml", "gpu.yaml"),
    ] {
        fs::copy(format!("{base}/{from}"), scratch.0.join(to)).unwrap();
    }
    scratch
}

/// A disk without room behind standard output.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let folder = folder("full");
    for args in [&POINT[..], &["list", "chips"], &["schema", "plan"], &["completions", "bash"]] {
        let full = fs::File::create("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowspace"));
        let out = command.args(args).current_dir(&folder.0).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {told}");
        assert_eq!(told, "error: cannot write to standard output: no space left on device\n", "{args:?}");
    }
}

/// No file that a command reads is written over, whichever way it was named.
#[test]
fn inputs_are_not_written_over() {
    let folder = folder("inputs");
    folder.succeed(&[&POINT[..], &["--plan-out", "plan.yaml"]].concat());
    let before: Vec<(String, Vec<u8>)> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    let llama = ["map", "--workload", "llama.yaml", "--system", "gpu.yaml", "--plan-out"];
    for (args, over) in [
        (
            &[&POINT[..], &["--plan-out"]].concat()[..],
            &["w.yaml", "s.yaml", "./w.yaml", "chip.yaml", "memory.yaml", "link.yaml"][..],
        ),
        (&["map", "--plan", "plan.yaml", "--plan-out"], &["plan.yaml"]),
        (&["check", "plan.yaml", "--plan-out"], &["plan.yaml"]),
        (&llama, &["llama.yaml", "gpu.yaml", "link.yaml"]),
    ] {
        for path in over {
            let out = folder.run(&[args, &[*path]].concat());
            let told = String::from_utf8_lossy(&out.stderr);
            let expected =
                format!("error: cannot write \"{path}\": it is an input of this command; give another name\n");
            assert!(out.status.code() == Some(1) && told == expected, "{args:?} {path}: {told}");
            assert!(out.stdout.is_empty(), "{args:?}: it is told before the work");
        }
    }
    for (name, contents) in before {
        assert_eq!(fs::read(folder.0.join(&name)).unwrap(), contents, "{name}");
    }
}

/// One rule: a folder that is named is made, the folder of a file that is named must be there.
#[test]
fn folders_are_made_and_folders_of_files_are_not() {
    let folder = folder("folders");
    folder.write("points.csv", "a,b\n1,2\n3,4\n");
    folder.write(
        "config.json",
        "{\"model_type\": \"llama\", \"hidden_size\": 1024, \"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"intermediate_size\": 4096, \"vocab_size\": 32000, \"max_position_embeddings\": 2048}",
    );
    let plot = ["plot", "points.csv", "--x", "a", "--y", "b", "--out"];
    for args in [
        &[&POINT[..], &["--plan-out"]].concat()[..],
        &[&POINT[..], &["--write-model"]].concat(),
        &["explain", "--workload", "w.yaml", "--system", "s.yaml", "--plot"],
        &["import", "hf", "config.json", "--out"],
        &plot,
    ] {
        let out = folder.run(&[args, &["nowhere/file.lp"]].concat());
        let told = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(told.contains("there is no folder \"nowhere\""), "{args:?}: {told}");
        assert!(!folder.0.join("nowhere").exists(), "{args:?}");
    }
    for (args, made) in [
        (&["man", "new/man"][..], "new/man/flowspace.1"),
        (&["study", "run", "study.yaml", "--no-plots", "--out", "new/study"], "new/study/results.csv"),
        (&["plot", "new/study/results.csv", "--out", "new/figures"], "new/figures/roofline.svg"),
    ] {
        folder.write(
            "study.yaml",
            "name: small\nworkload: w.yaml\nsystem: s.yaml\naxes: [{ name: cores, field: system.chip.cores, values: [8, 16] }]\n",
        );
        folder.succeed(args);
        assert!(folder.0.join(made).is_file(), "{made}");
    }
}
