//! Compiles HiGHS: a C++ compiler is all it needs. Files are compiled several at a time, as HiGHS' own build does on
//! macOS: most of the time goes into headers, which are then read once for all of them.
//!
//! The sources are those that the crate `highs-sys` carries, where cargo keeps it (`sources/Cargo.toml` pins it): that crate's own
//! build wants cmake and libclang, so it is fetched and not built.
//!
//! `FLOWSPACE_HIGHS=system` links the machine's libhighs instead, found by pkg-config.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders of `highs` that are compiled, and most files of each in one unit. What of HiGHS is not among them solves nothing that
/// flowspace asks: `left_out.cpp` stands in its place.
const FOLDERS: [(&str, usize); 13] = [
    ("presolve", 8),
    ("mip", 8),
    ("simplex", 9),
    ("lp_data", 6),
    ("ipm/ipx", 16),
    ("util", 16),
    ("ipm", 1),
    ("interfaces", 1),
    ("io", 9),
    ("io/filereaderlp", 1),
    ("model", 9),
    ("parallel", 9),
    ("test_kkt", 9),
];
/// The oldest libhighs that has all calls of `lib.rs`.
const OLDEST: &str = "1.7.0";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-env-changed=FLOWSPACE_HIGHS");
    println!("cargo:rerun-if-changed=build.rs");
    // Clippy builds no program: what is not linked need not be compiled. (Cargo names the wrapper to build scripts, and keeps what clippy
    // builds apart.)
    println!("cargo:rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    if std::env::var("RUSTC_WORKSPACE_WRAPPER").is_ok_and(|wrapper| wrapper.contains("clippy-driver")) {
        return Ok(());
    }
    match std::env::var("FLOWSPACE_HIGHS").as_deref() {
        Ok("system") => link_system(),
        Ok("bundled" | "") | Err(_) => compile(),
        Ok(other) => {
            Err(format!("FLOWSPACE_HIGHS is {other:?}: expected \"bundled\" (the default) or \"system\"").into())
        }
    }
}

/// Links the machine's libhighs.
fn link_system() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let ask = |what: &[&str]| -> Result<String, String> {
        let pkg_config = std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
        let out = Command::new(&pkg_config).args(what).output().map_err(|e| format!("cannot run {pkg_config}: {e}"))?;
        if out.status.success() {
            Ok(String::from_utf8_lossy(&out.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&out.stderr).into_owned())
        }
    };
    let at_least = format!("highs >= {OLDEST}");
    let flags = ask(&["--libs", &at_least])
        .map_err(|e| format!("FLOWSPACE_HIGHS=system, but pkg-config finds no HiGHS of {OLDEST} or newer: {e}"))?;
    let folder = ask(&["--variable=includedir", "highs"])?;
    // The calls of `lib.rs` pass 32-bit indices.
    for config in [Path::new(folder.trim()).join("highs/HConfig.h"), Path::new(folder.trim()).join("HConfig.h")] {
        if std::fs::read_to_string(&config).is_ok_and(|text| text.contains("#define HIGHSINT64")) {
            return Err(
                format!("{} is of a HiGHS with 64-bit indices, which flowspace cannot use", config.display()).into()
            );
        }
    }
    for flag in flags.split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={library}");
        }
    }
    Ok(())
}

/// The folder of HiGHS' sources: cargo fetches the pinned crate, checked by its lock file, and says where it lies.
fn fetched() -> Result<PathBuf, Box<dyn std::error::Error>> {
    let manifest = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("sources/Cargo.toml");
    let out = Command::new(std::env::var("CARGO")?)
        .args(["metadata", "--locked", "--format-version", "1", "--manifest-path"])
        .arg(&manifest)
        .output()?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(format!("cargo cannot fetch the crate that carries HiGHS' sources: {why}").into());
    }
    let text = String::from_utf8(out.stdout)?;
    let places = text.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut folders = places.map(|place| PathBuf::from(place.replace("\\\\", "\\"))).filter_map(|place| {
        let folder = place.parent()?.to_path_buf();
        folder.file_name()?.to_str()?.starts_with("highs-sys-").then(|| folder.join("HiGHS"))
    });
    folders.next().ok_or_else(|| "cargo metadata names no crate highs-sys".into())
}

/// Compiles HiGHS into a static library.
fn compile() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=sources");
    println!("cargo:rerun-if-changed=left_out.cpp");
    let root = fetched()?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("HConfig.h"), config(&root)?)?;

    let mut cpp = build(&root, &out);
    cpp.cpp(true).std("c++11");
    cpp.flag_if_supported("-mpopcnt");
    cpp.file("left_out.cpp");
    cpp.files(["HighsExternalApi.cpp", "HighsExternalDeps.cpp"].map(|f| root.join("highs").join(f)));
    cpp.files(["HighsExtrasApi.cpp", "HighsExtrasExternalDeps.cpp"].map(|f| root.join("extern").join(f)));
    for (folder, most) in FOLDERS {
        let files = sources(&root.join("highs").join(folder), &["cpp", "cc"])?;
        for (i, unit) in files.chunks(most).enumerate() {
            cpp.file(together(unit, &out.join(format!("{}_{i}.cpp", folder.replace('/', "_"))))?);
        }
    }
    cpp.try_compile("flowspace_highs")?;

    let mut c = build(&root, &out);
    c.std("c11");
    c.files(sources(&root.join("highs/ipm/basiclu"), &["c"])?);
    c.try_compile("flowspace_basiclu")?;
    Ok(())
}

/// A compiler with the flags of HiGHS' own release build, at -O2: -O3 takes longer to compile and was not seen to solve faster.
fn build(root: &Path, out: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build.opt_level(2).debug(false).warnings(false).define("NDEBUG", None).include(out);
    // What may go at link time, if nothing calls it.
    build.flag_if_supported("-ffunction-sections").flag_if_supported("-fdata-sections").flag_if_supported("-w");
    build.define("HIGHS_EXTRAS_VERSION", "\"bundled\"");
    build.include(root.join("extern")).include(root.join("highs"));
    for folder in [
        "interfaces",
        "io",
        "ipm",
        "ipm/ipx",
        "ipm/basiclu",
        "lp_data",
        "mip",
        "model",
        "parallel",
        "presolve",
        "simplex",
        "util",
    ] {
        build.include(root.join("highs").join(folder));
    }
    build
}

/// Files of a folder with one of these endings, by name.
fn sources(folder: &Path, endings: &[&str]) -> std::io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e)));
    files.sort();
    Ok(files)
}

/// One file that includes all of `unit`.
fn together(unit: &[PathBuf], to: &Path) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let mut text = String::new();
    for file in unit {
        writeln!(text, "#include {:?}", file.display().to_string())?;
    }
    std::fs::write(to, text)?;
    Ok(to.to_path_buf())
}

/// `HConfig.h`, which HiGHS' own build makes by cmake.
fn config(root: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let version = std::fs::read_to_string(root.join("Version.txt"))?;
    let number = |key: &str| -> Result<&str, String> {
        let line = version.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(str::trim).ok_or_else(|| format!("Version.txt has no {key}"))
    };
    let mut text = String::from(
        "#ifndef HCONFIG_H_\n#define HCONFIG_H_\n#define FAST_BUILD\n#define CUPDLP_CPU\n#define CMAKE_BUILD_TYPE \"Release\"\n",
    );
    if matches!(std::env::var("CARGO_CFG_TARGET_ARCH")?.as_str(), "x86" | "x86_64") {
        text.push_str("#define HIGHS_HAVE_MM_PAUSE\n");
    }
    let msvc = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "msvc");
    text.push_str(if msvc { "#define HIGHS_HAVE_BITSCAN_REVERSE\n" } else { "#define HIGHS_HAVE_BUILTIN_CLZ\n" });
    text.push_str("#define HIGHS_GITHASH \"n/a\"\n");
    for (name, key) in [("MAJOR", "HIGHS_MAJOR"), ("MINOR", "HIGHS_MINOR"), ("PATCH", "HIGHS_PATCH")] {
        writeln!(text, "#define HIGHS_VERSION_{name} {}", number(key)?)?;
    }
    text.push_str("#endif\n");
    Ok(text)
}
