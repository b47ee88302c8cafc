//! Names to take instead, for one who asked for events by a part of a name that none has.

use super::critical::names::short;
use crate::spec::nearest::{near, quoted};
use std::collections::HashMap;

/// Most names that are told.
const MOST: usize = 3;

/// `names that come near: "a"`, or where none does `the names with most time: "a", "b" or "c"`: of names with their nanoseconds, each shortened and told
/// once.
pub fn instead_of<'n>(part: &str, names: impl Iterator<Item = (&'n str, u64)>) -> String {
    // Names repeat by the ten thousand: they are shortened once each.
    let mut whole: HashMap<&str, u64> = HashMap::new();
    for (name, ns) in names {
        let sum = whole.entry(name).or_default();
        *sum = sum.saturating_add(ns);
    }
    let mut by_time: HashMap<String, u64> = HashMap::new();
    for (name, ns) in whole {
        let sum = by_time.entry(short(name)).or_default();
        *sum = sum.saturating_add(ns);
    }
    let mut list: Vec<(&str, u64)> = by_time.iter().map(|(name, ns)| (&**name, *ns)).collect();
    list.sort_by_key(|(name, ns)| (std::cmp::Reverse(*ns), *name));
    let known: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
    let close = near(part, &known, MOST);
    match (close.is_empty(), known.get(..MOST).unwrap_or(&known)) {
        (false, _) => format!("names that come near: {}", quoted(&close)),
        (true, []) => "there are none".into(),
        (true, most) => format!("the names with most time: {}", quoted(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_or_those_with_most_time() {
        let names =
            [("void at::native::add<float>(float*)", 3), ("sgemm_32x32", 2), ("void at::native::add<half>(x)", 3)];
        let with = |part: &str| instead_of(part, names.iter().copied().chain([("softmax", 5), ("x", 1)]));
        assert_eq!(with("sgemmm"), "names that come near: \"sgemm_32x32\"");
        assert_eq!(with("nothing"), "the names with most time: \"at::native::add\", \"softmax\" or \"sgemm_32x32\"");
        assert_eq!(instead_of("a", std::iter::empty()), "there are none");
    }
}
