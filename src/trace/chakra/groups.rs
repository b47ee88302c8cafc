//! `comm_group.json`: which ranks a process group has, `{"<group id>": [ranks]}`, as ASTRA-sim reads it.

use crate::trace::error::{TraceError, TraceErrors};
use crate::trace::input;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

/// Ranks of each group, in the order of the group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommGroups(pub BTreeMap<String, Vec<u64>>);

/// No such file is larger: a million ranks in a thousand groups each.
const LARGEST: u64 = 1 << 33;

impl CommGroups {
    /// Reads a file, plain or gzip.
    ///
    /// # Errors
    /// [`TraceErrors`]: no JSON, or a group that is no list of ranks, or names a rank twice.
    pub fn read(path: &Path) -> Result<Self, TraceErrors> {
        let mut text = Vec::new();
        input::open(path)?.take(LARGEST).read_to_end(&mut text).map_err(|e| TraceError::io(path, &e))?;
        Self::parse(&text, path)
    }

    /// Reads a text; `path` is for messages.
    ///
    /// # Errors
    /// As [`CommGroups::read`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, TraceErrors> {
        let map: BTreeMap<String, serde_json::Value> = serde_json::from_slice(text)
            .map_err(|e| TraceError::new(path, format!("expected groups as {{\"<group>\": [ranks], ...}}: {e}")))?;
        let mut errors = Vec::new();
        let mut groups = BTreeMap::new();
        for (name, value) in map {
            let fault = |message: &str| TraceError::new(path, message).field(format!("{name:?}"));
            let ranks: Option<Vec<u64>> =
                value.as_array().and_then(|list| list.iter().map(serde_json::Value::as_u64).collect());
            match ranks {
                None => errors.push(fault("expected a list of ranks (integers of at least 0)")),
                Some(ranks) if ranks.is_empty() => errors.push(fault("the group has no ranks")),
                Some(ranks) => {
                    let mut sorted = ranks.clone();
                    sorted.sort_unstable();
                    sorted.dedup();
                    if sorted.len() < ranks.len() {
                        errors.push(fault("a rank stands in the group twice"));
                    } else {
                        groups.insert(name, ranks);
                    }
                }
            }
        }
        if errors.is_empty() { Ok(Self(groups)) } else { Err(TraceErrors(errors)) }
    }

    /// The text of the file: groups by number, then by name; one a line.
    pub fn text(&self) -> String {
        let mut order: Vec<&String> = self.0.keys().collect();
        order.sort_by_key(|name| (name.parse::<u64>().unwrap_or(u64::MAX), (*name).clone()));
        let lines: Vec<String> = order
            .iter()
            .map(|name| {
                let ranks: Vec<String> = self.0.get(*name).into_iter().flatten().map(u64::to_string).collect();
                format!("  {}: [{}]", serde_json::Value::from(name.as_str()), ranks.join(", "))
            })
            .collect();
        if lines.is_empty() { "{}\n".into() } else { format!("{{\n{}\n}}\n", lines.join(",\n")) }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TraceError> {
        std::fs::write(path, self.text()).map_err(|e| TraceError::io(path, &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = br#"{"2": [2, 3], "10": [0, 1], "1": [0]}"#;
        let groups = CommGroups::parse(text, Path::new("g")).unwrap();
        assert_eq!(groups.0["10"], [0, 1]);
        let written = groups.text();
        assert_eq!(written, "{\n  \"1\": [0],\n  \"2\": [2, 3],\n  \"10\": [0, 1]\n}\n");
        assert_eq!(CommGroups::parse(written.as_bytes(), Path::new("g")).unwrap(), groups);
    }

    #[test]
    fn faults_come_all_at_once() {
        let errors = CommGroups::parse(br#"{"1": [0, 0], "2": 3, "3": [-1], "4": []}"#, Path::new("g")).unwrap_err();
        assert_eq!(errors.0.len(), 4);
        assert!(CommGroups::parse(b"[1]", Path::new("g")).is_err());
    }
}
