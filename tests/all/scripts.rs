//! The scripts: that bash can read them, and what `setup.sh` says where something is missing.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn bash_reads_every_script() {
    let mut scripts: Vec<PathBuf> =
        std::fs::read_dir(root().join("scripts")).unwrap().map(|e| e.unwrap().path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|e| e == "sh"));
    scripts.push(root().join(".ci/run"));
    assert!(scripts.len() >= 6, "{scripts:?}");
    for script in scripts {
        let output = Command::new("bash").arg("-n").arg(&script).output().unwrap();
        assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
    }
}

/// A folder of commands that stand for a machine; gone when the test ends.
struct Machine(PathBuf);

impl Machine {
    /// A user without sudo, whose machine has cargo and the commands that `commands` gives, each with what it does.
    fn new(name: &str, commands: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("flowspace-machine-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let machine = Self(folder);
        for tool in ["bash", "mktemp", "rm"] {
            let found = ["/bin", "/usr/bin"].iter().map(|f| Path::new(f).join(tool)).find(|p| p.exists()).unwrap();
            symlink(found, machine.0.join(tool)).unwrap();
        }
        for (command, body) in [("cargo", "echo cargo 1.89.0"), ("id", "echo 1000")].iter().chain(commands) {
            let path = machine.0.join(command);
            std::fs::write(&path, format!("#!/bin/bash\n{body}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        // Certificates, whatever the machine of the test has.
        std::fs::write(machine.0.join("certificates"), "some").unwrap();
        machine
    }

    fn set_up(&self, purpose: &str) -> Output {
        Command::new("bash")
            .args([&root().join("scripts/setup.sh").display().to_string(), purpose])
            .env_clear()
            .env("PATH", &self.0)
            .env("SSL_CERT_FILE", self.0.join("certificates"))
            .output()
            .unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A compiler that eats its programme and succeeds.
const WORKS: &str = "while read -r _; do :; done";
/// An apt-get that must not be run.
const NOT_RUN: &str = "echo apt-get was run >&2; exit 1";

#[track_caller]
fn says(machine: &Machine, purpose: &str, code: i32, expected: &str) {
    let output = machine.set_up(purpose);
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    assert_eq!(output.status.code(), Some(code));
    assert!(output.stdout.is_empty());
}

#[test]
fn setup_is_silent_where_all_is_there() {
    let machine = Machine::new("whole", &[("cc", WORKS), ("c++", WORKS), ("apt-get", NOT_RUN)]);
    for purpose in ["", "no-milp", "cbc"] {
        says(&machine, purpose, 0, "");
    }
}

#[test]
fn setup_without_root_names_the_packages_and_the_way_without_milp() {
    let machine = Machine::new("no-root", &[("cc", WORKS), ("c++", "exit 1"), ("apt-get", NOT_RUN)]);
    says(&machine, "no-milp", 0, "");
    says(
        &machine,
        "",
        69,
        "flowspace's build needs what this machine lacks:\n  \
           a C++ compiler (c++), for the MILP solver HiGHS\n\
         Nothing was installed. An administrator would do it with:\n  \
           apt-get install g++\n\
         Or without a MILP engine (the exact engines are all there): scripts/quickstart.sh --no-milp\n\
         Then run this again.\n",
    );
}

#[test]
fn setup_names_the_packages_of_each_package_manager() {
    let packages = [
        ("apt-get", "apt-get install gcc libc6-dev g++ coinor-libcbc-dev"),
        ("dnf", "dnf install gcc gcc-c++ coin-or-Cbc-devel"),
        ("pacman", "pacman -S --needed gcc coin-or-cbc"),
        ("brew", "xcode-select --install; brew install cbc"),
    ];
    for (manager, command) in packages {
        let machine = Machine::new(manager, &[("cc", "exit 1"), (manager, NOT_RUN)]);
        says(
            &machine,
            "cbc",
            69,
            &format!(
                "flowspace's build needs what this machine lacks:\n  \
                   a C compiler and linker (cc)\n  \
                   a C++ compiler (c++), for the MILP solver HiGHS\n  \
                   CBC (libCbcSolver), the second MILP solver of the tests\n\
                 Nothing was installed. An administrator would do it with:\n  \
                   {command}\n\
                 Then run this again.\n"
            ),
        );
    }
}

#[test]
fn setup_asks_for_a_rust_that_is_new_enough() {
    let machine = Machine::new("old", &[("cargo", "echo cargo 1.63.0")]);
    says(
        &machine,
        "",
        69,
        "flowspace needs Rust 1.89 or newer, and cargo is 1.63.0: bring a newer one from https://rustup.rs (Debian's own is too \
         old), then run this again.\n",
    );
}
